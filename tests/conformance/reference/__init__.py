"""What the originals do and Penstock does not ship: run by the numeric cases, and an oracle for
property tests of the shipped code."""
