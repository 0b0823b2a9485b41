"""Which of these pages are no doctests."""

#: A script with a docstring of its own; tests/test_docs.py runs it.
collect_ignore = ["write-a-policy.md"]
