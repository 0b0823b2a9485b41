"""``spark.locality.wait`` at 0s while executors come and go.

A stateful task waits that long (3 s) for the executor that holds its state. So new executors get
no stateful work at all, and after one has gone each of its tasks waits in vain: measured on the
same query, one batch takes 8.5 s longer instead of 0.6 s. With no wait, tasks go where a slot is
free, take their state with them, and stay there when the wait comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

log = logging.getLogger(__name__)

NO_WAIT = "0s"
#: Batches that must run through on a fleet that stands still.
CLEAN_BATCHES = 3
#: Rounds of them that new executors get to take stateful work.
ROUNDS = 3

Batches = Callable[[], Mapping[str, int]]
StatePartitions = Mapping[str, int | None]


class LocalitySetting(Protocol):
    """The setting in the running application."""

    def locality_wait(self) -> str: ...

    def set_locality_wait(self, duration: str) -> None: ...


class LocalityGuard:
    """Takes the wait away before a rescale, and gives it back when the batches run clean again.

    Parameters
    ----------
    setting
        Where it is read and written.
    batches
        The number of the last batch that each query has committed.
    """

    def __init__(self, setting: LocalitySetting, batches: Batches) -> None:
        self._setting = setting
        self._batches = batches
        self._usual: str | None = None
        self._since: dict[str, int] | None = None
        self._newcomers: set[str] = set()
        self._rounds = 0

    @property
    def is_open(self) -> bool:
        """Whether tasks may go anywhere now."""
        return self._usual is not None

    def open(self) -> None:
        """Let tasks go anywhere; call it before executors come or go, and after one is lost."""
        self._since = None
        self._rounds = 0
        if self._usual is None:
            usual = self._setting.locality_wait()
            self._setting.set_locality_wait(NO_WAIT)
            self._usual = usual

    def welcome(self, executor_ids: set[str]) -> None:
        """Executors that are new: before the wait comes back they should have taken work."""
        self._newcomers |= executor_ids

    def reconcile(self, *, is_settled: bool, state: StatePartitions) -> None:
        """Count clean batches once the fleet stands still, and close after enough of them."""
        if self._usual is None:
            return
        if not is_settled:
            self._since = None
            return
        if self._since is None:
            self._since = dict(self._batches())
            return
        now = self._batches()
        if not ran_clean(self._since, now):
            return
        idle = without_work(self._newcomers, state)
        self._rounds += 1
        if idle and self._rounds < ROUNDS:
            self._since = dict(now)
            return
        if idle:
            log.warning(
                "new executors %s took no stateful work in %d batches: more of them will not help "
                "this query",
                ", ".join(sorted(idle)),
                CLEAN_BATCHES * ROUNDS,
            )
        self.close()

    def close(self) -> None:
        """Give the user's own wait back."""
        if self._usual is not None:
            self._setting.set_locality_wait(self._usual)
        self._usual = None
        self._since = None
        self._newcomers = set()


def ran_clean(since: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether every query that ran has run enough batches; idle ones are not waited for.

    One batch was already running when the counting began, and is not counted.

    >>> ran_clean({"a": 7, "b": 2}, {"a": 11, "b": 2}), ran_clean({"a": 7}, {"a": 10})
    (True, False)
    """
    ran = [last - since.get(query, last) for query, last in now.items()]
    ran = [batches for batches in ran if batches > 0]
    return bool(ran) and min(ran) > CLEAN_BATCHES


def without_work(newcomers: set[str], state: StatePartitions) -> set[str]:
    """New executors that got no state while others keep more than one partition each.

    >>> sorted(without_work({"3", "4"}, {"1": 8, "2": 6, "3": 2, "4": 0}))
    ['4']
    >>> without_work({"3"}, {"1": 1, "2": 1, "3": 0})  # two partitions cannot feed three
    set()
    """
    if not any(count is not None and count > 1 for count in state.values()):
        return set()
    return {each for each in newcomers if state.get(each) == 0}
