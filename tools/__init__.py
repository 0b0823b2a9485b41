"""Checks of the repository that no published linter makes; `make check` runs them."""
