"""``python -m penstock``."""

from penstock.cli.start import main

main()
