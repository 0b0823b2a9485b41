"""What an interrupt must not do: cut some steps in two, or be told as an error of somebody else."""

from __future__ import annotations

import logging
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


@contextmanager
def interrupt_once() -> Iterator[None]:
    """An interrupt in the middle of a call to Java is no error of Py4J: it says nothing of it.

    >>> with interrupt_once():
    ...     try:
    ...         raise KeyboardInterrupt
    ...     except KeyboardInterrupt:
    ...         logging.exception("KeyboardInterrupt while sending command.")
    """
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    level = py4j.level
    root.addFilter(_is_no_interrupt)
    py4j.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        py4j.setLevel(level)
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, KeyboardInterrupt)
