"""The command line: `app`, one file per command, and what commands draw on a terminal.

Options are read and results are shown here; nothing is computed that a library user could want.
"""
