"""Waiting by asking: the only way in which the testbed, and its tests, let time pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core.clock import WallClock

Answer = TypeVar("Answer")


def wait_until(
    condition: Callable[[], Answer], timeout_s: float, message: str, *, every_s: float = 0.1
) -> Answer:
    """The first answer of ``condition`` that is true, or a `TimeoutError` that says ``message``.

    It is asked at least once, however short the time.

    >>> answers = iter([False, 0, "ready"])
    >>> wait_until(lambda: next(answers), timeout_s=5.0, message="never ready", every_s=0.001)
    'ready'
    >>> wait_until(lambda: False, timeout_s=0.0, message="the broker is asleep", every_s=0.001)
    Traceback (most recent call last):
    TimeoutError: the broker is asleep (waited 0 s)
    """
    instants = WallClock().ticks(every_s)
    started_at_s = now_s = next(instants)
    while not (answer := condition()):
        if now_s - started_at_s >= timeout_s:
            raise TimeoutError(f"{message} (waited {timeout_s:g} s)")
        now_s = next(instants)
    return answer
