"""The dashboard of one running job, fed by its loop. Whatever fails here, the loop goes on."""

import logging
from collections.abc import Callable, Iterable

from penstock.core.model import Limits, Step
from penstock.observe.dashboard.server import DashboardServer, JobBoard
from penstock.observe.dashboard.state import WatchedJob
from penstock.observe.metrics import Values
from penstock.settings.goal import Goal

log = logging.getLogger(__name__)


class LiveDashboard:
    """Serves the page of one job; `now` is what no step says."""

    def __init__(self, where: str, name: str, now: Callable[[], Values]) -> None:
        board, self._has_failed = JobBoard(), False
        self._job = WatchedJob("live", name, lambda: state_of(now()))
        board.add(self._job)
        self._server = DashboardServer(where, board)
        log.info("the dashboard is at http://%s/", where)

    def begin(self, policy: str, past: Iterable[Step], limits: Limits, goal: Goal) -> None:
        """Show the turns that the journal of the job has already."""
        self._job.policy = policy
        self.take(past, limits, goal)

    def take(self, steps: Iterable[Step], limits: Limits, goal: Goal) -> None:
        """Show further turns."""
        try:
            self._job.limits, self._job.goal = limits, goal
            for step in steps:
                self._job.take(step)
        except Exception as error:  # a page is no reason to stop scaling
            if not self._has_failed:
                log.warning("the dashboard is incomplete: %s", error)
            self._has_failed = True

    def close(self) -> None:
        """Free the port; may be repeated."""
        self._server.close()


def state_of(now: Values) -> str:
    """What the scaler does, in a word.

    >>> state_of({("acting",): 1.0, ("paused",): 0.0}), state_of({("failed",): 1.0})
    ('acts', 'failed')
    """
    for name, word in ("failed", "failed"), ("paused", "paused"), ("acting", "acts"):
        if now.get((name,)):
            return word
    return "recommends only"
