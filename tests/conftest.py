"""What all tests stand on: examples that come out the same every time, and Ctrl-C that works."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# No deadline: a wall clock in disguise.
settings.register_profile("penstock", deadline=None, derandomize=True, max_examples=60)
# Other examples at each run: HYPOTHESIS_PROFILE=random make test-fast. What fails is printed with
# the line that repeats it, and kept in .hypothesis.
settings.register_profile("random", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "penstock"))

# A shell that starts `make test` in the background has it ignore Ctrl-C, and so would every program
# that a test starts in order to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
