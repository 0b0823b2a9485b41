"""What all tests stand on: examples that come out the same every time, and Ctrl-C that works."""

from __future__ import annotations

import signal

from hypothesis import settings

# No deadline: a wall clock in disguise.
settings.register_profile("penstock", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("penstock")

# A shell that starts `make test` in the background has it ignore Ctrl-C, and so would every program
# that a test starts in order to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
