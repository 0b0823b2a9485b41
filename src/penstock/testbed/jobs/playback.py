"""Sends a stream of events on time, and says so when it cannot keep up.

Nothing is skipped: what is late is sent late, and an event always says when it was due.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from msgspec import Struct, structs

from penstock.core.protocols import Clock
from penstock.testbed.jobs.timeline import Timeline

TICK_S = 0.01
TOLERANCE_S = 1.0  #: Later than this is not keeping up.
#: So that a late sender still checks the clock, and whether it is stopped.
RECORDS_PER_TICK = 20_000

log = logging.getLogger(__name__)


class EventStream(Protocol):
    """Events in blocks of one size."""

    @property
    def block_size(self) -> int: ...

    def block(self, number: int) -> list[bytes]:
        """Events `number * block_size` up to the first of the next block."""


class Sender(Protocol):
    """Takes events that are due."""

    def send(self, values: list[bytes], first: int) -> int:
        """Take as many of the values as there is room for; the first bears that number."""

    def close(self) -> int:
        """Wait until what was taken has arrived; how many events did not."""


class Report(Struct, frozen=True):
    """What became of a plan: all of it, or what was due when it was stopped."""

    planned_records: int
    sent_records: int
    failed_records: int
    elapsed_s: float
    behind_max_records: int
    behind_max_s: float

    @property
    def shortfall_records(self) -> int:
        """What was planned and never arrived."""
        return self.planned_records - self.sent_records + self.failed_records

    @property
    def kept_up(self) -> bool:
        """Whether all of it arrived, and never more than a second late."""
        return self.shortfall_records == 0 and self.behind_max_s <= TOLERANCE_S

    def sentence(self) -> str:
        """The report for people.

        >>> print(Report(1000, 900, 0, 10.0, 300, 3.5).sentence())
        900 of 1000 events sent in 10.0 s, at most 3.5 s late: could not keep up, 100 are missing
        """
        text = (
            f"{self.sent_records - self.failed_records} of {self.planned_records} events sent "
            f"in {self.elapsed_s:.1f} s, at most {self.behind_max_s:.1f} s late"
        )
        if self.kept_up:
            return text
        missing = self.shortfall_records
        return f"{text}: could not keep up" + (f", {missing} are missing" if missing else "")


def join_reports(reports: Sequence[Report]) -> Report:
    """One report of several streams that were sent at the same time.

    >>> join_reports([Report(10, 9, 1, 5.0, 3, 0.5), Report(10, 10, 0, 6.0, 2, 0.9)])
    Report(planned_records=20, sent_records=19, failed_records=1, elapsed_s=6.0, \
behind_max_records=3, behind_max_s=0.9)
    """
    planned, sent, failed, elapsed_s, behind, behind_s = zip(
        *map(structs.astuple, reports), strict=True
    )
    counts = sum(planned), sum(sent), sum(failed)
    return Report(*counts, max(elapsed_s), max(behind), max(behind_s))


def play(
    timeline: Timeline,
    stream: EventStream,
    sender: Sender,
    clock: Clock,
    *,
    start_s: float | None = None,
    give_up_after_s: float = 60.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Make the events of the stream here, send each when it is due, and wait until they arrived."""
    block = lru_cache(maxsize=1)(stream.block)  # the one that is being sent

    def send(first: int, stop: int) -> int:
        sent, stop = first, min(stop, first + RECORDS_PER_TICK)
        while sent < stop:
            number, place = divmod(sent, stream.block_size)
            values = block(number)[place : place + stop - sent]
            taken = sender.send(values, sent)
            sent += taken
            if taken < len(values) or stopped():
                break
        return sent - first

    report = follow(timeline, send, clock, TICK_S, start_s, give_up_after_s, stopped)
    return structs.replace(report, failed_records=sender.close())


def follow(
    timeline: Timeline,
    send: Callable[[int, int], int],
    clock: Clock,
    tick_s: float,
    start_s: float | None = None,
    give_up_after_s: float = 60.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Send each event when it is due, until all are out or `stopped` says so.

    `send` gets the number of the first event that is due and not sent, and the number after the
    last; it returns how many it took. The timeline starts at `start_s`, by default at the clock's
    first instant. What is late is sent until `give_up_after_s` after its end.
    """
    sent = behind_max = 0
    behind_max_s = elapsed_s = 0.0
    late = False
    for now_s in clock.ticks(tick_s):
        start_s = now_s if start_s is None else start_s
        elapsed_s = now_s - start_s
        due = timeline.due_by(elapsed_s)
        if sent < due:
            behind_s = elapsed_s - float(timeline.due_s(np.array([sent]))[0])
            behind_max_s = max(behind_max_s, behind_s)
            behind_max = max(behind_max, due - sent)
            late = _say_if_late(late, behind_s, due - sent)
            sent += send(sent, due)
        gave_up = elapsed_s > timeline.duration_s + give_up_after_s
        if sent == timeline.events or gave_up:
            break
        if stopped():
            return Report(due, sent, 0, elapsed_s, behind_max, behind_max_s)
    return Report(timeline.events, sent, 0, elapsed_s, behind_max, behind_max_s)


def _say_if_late(late: bool, behind_s: float, behind: int) -> bool:
    """Log once that events are late, and once that they are not any more."""
    if not late and behind_s > TOLERANCE_S:
        log.warning("cannot keep up: %d events are due, the oldest for %.1f s", behind, behind_s)
        return True
    if late and behind_s <= TOLERANCE_S / 2:
        log.warning("keeps up again")
        return False
    return late
