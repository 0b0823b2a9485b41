"""``spark.locality.wait`` at 0s while executors come and go.

A stateful task waits that long (3 s) for the executor that holds its state. So new executors get
no stateful work, and after one has left each of its tasks waits in vain: measured on the same
query, one batch takes 8.5 s longer instead of 0.6 s. Without the wait, tasks run where a slot is
free, load their state there, and stay when the wait is restored.
"""

import logging
from collections.abc import Callable, Mapping

from penstock.spark.internals import Driver

log = logging.getLogger(__name__)

NO_WAIT = "0s"
CLEAN_BATCHES = 3  #: Batches that must complete on a fleet that does not change.
ROUNDS = 3  #: New executors have this many rounds of them to take stateful work.

Batches = Callable[[], Mapping[str, int]]
StatePartitions = Mapping[str, int | None]


class LocalityGuard:
    """Sets the wait to zero before a rescale, and restores it after enough clean batches.

    `batches` gives the number of the last committed batch of each query.
    """

    def __init__(self, driver: Driver, batches: Batches) -> None:
        self._driver = driver
        self._batches = batches
        self._saved: str | None = None
        self._since: dict[str, int] | None = None
        self.new_executors: set[str] = set()  #: They should take work before it is restored.
        self._rounds = 0

    @property
    def is_open(self) -> bool:
        return self._saved is not None

    def open(self) -> None:
        """Set the wait to zero; call it before executors come or leave, and after one is lost."""
        self._since, self._rounds = None, 0
        if self._saved is None:
            saved = self._driver.locality_wait()
            self._driver.set_locality_wait(NO_WAIT)
            self._saved = saved

    def reconcile(self, *, is_settled: bool, state: StatePartitions) -> None:
        """Count clean batches once the fleet is settled, and close after enough of them."""
        if self._saved is None or not is_settled:
            self._since = None
            return
        since, now = self._since, dict(self._batches())
        if since is None:
            self._since = now
            return
        since = self._since = now | since  # a query may have its first batch only now
        if not ran_clean(since, now):
            return
        idle = without_work(self.new_executors, state)
        self._rounds += 1
        if idle and self._rounds < ROUNDS:
            self._since = now
            return
        if idle:
            log.warning(
                "new executors %s took no stateful work in %d batches: more executors will not "
                "help this query",
                *(", ".join(sorted(idle)), CLEAN_BATCHES * ROUNDS),
            )
        self.close()

    def close(self) -> None:
        """Restore the user's own wait."""
        if self._saved is not None:
            self._driver.set_locality_wait(self._saved)
        self._saved = self._since = None
        self.new_executors = set()


def ran_clean(since: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether every query that is not idle has committed enough batches.

    The batch that ran when counting began does not count.

    >>> ran_clean({"a": 7, "b": 2}, {"a": 11, "b": 2}), ran_clean({"a": 7}, {"a": 10})
    (True, False)
    """
    ran = [last - since.get(query, last) for query, last in now.items()]
    ran = [batches for batches in ran if batches > 0]
    return bool(ran) and min(ran) > CLEAN_BATCHES


def without_work(new_executors: set[str], state: StatePartitions) -> set[str]:
    """New executors without state while another one has more than one partition.

    >>> sorted(without_work({"3", "4"}, {"1": 8, "2": 6, "3": 2, "4": 0}))
    ['4']
    >>> without_work({"3"}, {"1": 1, "2": 1, "3": 0})  # two partitions cannot feed three
    set()
    """
    if not any(count is not None and count > 1 for count in state.values()):
        return set()
    return {each for each in new_executors if state.get(each) == 0}
