"""A simulated driver: executors that come, leave, hang and die as a test says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.spark.internals import Driver


class SimulatedDriver(Driver):
    """Does what Spark does with a fleet, in the order of the calls.

    `room` is how many executors the cluster can give; `busy` whether a job runs.
    """

    def __init__(self, executors: int, room: int = 16) -> None:
        self.room = room
        self.requested: int | None = None
        self.alive = [str(number) for number in range(1, executors + 1)]
        self.going: set[str] = set()
        self.wait = "3s"
        self.waits: list[str] = []
        self.busy = False
        self.obeys = True
        self.why = ""
        self.calls: list[tuple[str, ...]] = []
        self._born = executors

    def request_total_executors(self, executors: int) -> bool:
        self.calls.append(("request", str(executors)))
        if self.obeys:
            self.requested = executors
        return self.obeys

    def requested_total_executors(self) -> int | None:
        return self.requested

    def executor_ids(self) -> list[str]:
        return list(self.alive)

    def leaving(self) -> set[str]:
        return set(self.going)

    def executors(self) -> list[dict[str, Any]]:
        raise AssertionError("the status store may hang: nobody asks it to move a fleet")

    def decommission(self, executor_ids: Sequence[str]) -> list[str]:
        chosen = list(executor_ids)
        self.calls.append(("decommission", *chosen))
        self.going |= set(chosen)
        return chosen

    def kill_idle(self, executor_ids: Iterable[str], *, adjust_target: bool = True) -> list[str]:
        chosen = [] if self.busy else list(executor_ids)
        self.calls.append(("kill_idle", *chosen))
        if adjust_target:
            self.requested = max(0, (self.requested or 0) - len(chosen))
        self.going |= set(chosen)
        return chosen

    def why_pending(self) -> str:
        return self.why

    def runs_a_job(self) -> bool:
        return self.busy

    def locality_wait(self) -> str:
        return self.wait

    def set_locality_wait(self, duration: str) -> None:
        self.wait = duration
        self.waits.append(duration)

    # -- What the world does --------------------------------------------------------------------

    def let_go(self) -> None:
        """Executors that are leaving are gone."""
        self.alive = [each for each in self.alive if each not in self.going]
        self.going = set()

    def lose(self, executor_id: str) -> None:
        self.alive.remove(executor_id)

    def give(self) -> None:
        """Start what is missing, as far as there is room."""
        active = len(self.alive) - len(self.going)
        for _ in range(min(self.requested or 0, self.room) - active):
            self._born += 1
            self.alive.append(str(self._born))
