"""``python -m penstock``."""

from penstock.cli.app import main

main()
