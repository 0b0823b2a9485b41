"""Steps that an interrupt must not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is done, and are then handled as usual.

    A program whose start was cut off between its fork and our note of it would be ended by nobody.

    >>> import os
    >>> noted = []
    >>> try:
    ...     with uninterrupted():
    ...         os.kill(os.getpid(), signal.SIGINT)
    ...         noted.append("started")
    ... except KeyboardInterrupt:
    ...     noted
    ['started']
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in its main thread only
        return
    came: list[int] = []
    usual = {
        number: signal.signal(number, lambda number, _frame: came.append(number))
        for number in INTERRUPTS
    }
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)
