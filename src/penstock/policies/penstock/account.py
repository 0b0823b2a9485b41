"""What a micro-batch costs, from what Spark measured of it: the driver, tasks and records.

A batch takes the time of its driver and of its stages. A stage of k tasks runs in rounds, as many
tasks at a time as there are slots, and all its tasks together take

    work = k x overhead + records x cost        core-seconds

What belongs to the platform, the time of the driver and the overhead of a task, changes slowly.
What belongs to the data, the cost of a record, may change at once: a batch that took longer than
expected has more expensive records, unless batches of other sizes show that tasks have an overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Batch, BatchStage

BATCHES = 200.0  #: How many batches are remembered.
FAR = 0.3  #: A task that took this much more or less than expected is news.
RESIZED = 1.5  #: Sizes that differ by this factor show what a task costs without records.
MOST_OVERHEAD = 0.9  #: The most of what a task took at least that can be overhead.
#: Sizes that vary by a fifth (squared: this) say half of what an overhead is, however many batches
#: there were: the batch after a slow one is larger, which looks like an overhead and is none.
DOUBT = 0.04
LINE_BATCHES = 4.0  #: After fewer batches a longer task shows no overhead: it may be a straggler.
FAST = 0.3  #: The weight of a batch in what a record costs.
MANY_ROUNDS = 6.0  #: With as many, tasks of unequal length fill the gap that the last one leaves.


class StageCost(Struct, frozen=True, gc=False, array_like=True):
    """A stage: the overhead of a task and the cost of a record, in core-seconds.

    A task of `size` records takes ``overhead + size x record_s``, so a record takes ``record_s +
    overhead / size``: a line over ``1 / size``, on which small batches count as much as large ones.
    `inverse` and `cost_s` are the means of both, with the two moments of a least-squares line.
    `last_size` and `last_took_s` are the size and time of a task in the last batches, `least_s` is
    the least that a task took since the line began, `news` counts batches in a row that nothing
    known explains, `prior_s` is the overhead that was known when the line began.

    >>> stage = StageCost(12)
    >>> for records in (1200, 6000, 2400, 600):
    ...     stage = stage.with_batch(12, records, 12 * 0.034 + records * 1.1e-3)
    >>> round(stage.overhead_s, 3), round(1e3 * stage.record_s, 2)
    (0.034, 1.1)
    """

    tasks: int
    overhead_s: float = 0.0
    least_s: float = 0.0
    last_size: float = 0.0
    last_took_s: float = 0.0
    count: float = 0.0
    inverse: float = 0.0
    cost_s: float = 0.0
    inverse_inverse: float = 0.0
    inverse_cost: float = 0.0
    news: int = 0
    prior_s: float = 0.0
    beside: bool = False  #: Whether it shares the slots with the stage before it.

    @property
    def record_s(self) -> float:
        if not self.last_size:
            return 0.0
        return max(0.0, self.last_took_s - self.overhead_s) / self.last_size

    def with_batch(self, tasks: int, records: float, work_s: float, warm: float = 1.0) -> StageCost:
        """The stage with one more batch. A batch that is far off counts if the next one is too.

        `warm` is what the batch is worth: code that was not compiled yet says little.
        """
        size, took_s = records / tasks, work_s / tasks
        if self.count == 0.0 or tasks != self.tasks:
            return self._restarted(tasks, size, took_s)
        expected_s = self.overhead_s + self.record_s * size
        if abs(took_s - expected_s) <= FAR * expected_s:
            return self._added(size, took_s, None, warm)
        if not self.news:
            return replace(self, news=1)
        smaller = RESIZED * self.inverse * size < 1.0 and took_s > expected_s
        # A task that took no longer than larger ones was not slow: its records are not dearer.
        smaller = smaller and (self.count >= LINE_BATCHES or took_s <= self.last_took_s)
        overhead_s = self._line_overhead_s(size, took_s) if smaller else None
        if overhead_s is not None:
            return self._added(size, took_s, overhead_s, warm)
        return self._restarted(tasks, size, took_s)

    def _restarted(self, tasks: int, size: float, took_s: float) -> StageCost:
        """Records have another cost from this batch on; the overhead of a task stays."""
        overhead_s = min(self.overhead_s, MOST_OVERHEAD * took_s)
        first = StageCost(tasks, overhead_s, took_s, size, took_s, 1.0, 1.0 / size, took_s / size)
        return replace(first, prior_s=overhead_s, beside=self.beside)

    def _line_overhead_s(self, size: float, took_s: float) -> float | None:
        """The overhead with which a smaller batch costs the same per record as those before."""
        overhead_s = (took_s / size - self.cost_s) / (1.0 / size - self.inverse)
        return overhead_s if 0.0 <= overhead_s * self.inverse < self.cost_s else None

    def _added(
        self, size: float, took_s: float, overhead_s: float | None, warm: float
    ) -> StageCost:
        weight = max(warm / (self.count + warm), warm / BATCHES)
        smaller, dearer_s = 1.0 / size - self.inverse, took_s / size - self.cost_s
        inverse_inverse = (1.0 - weight) * (self.inverse_inverse + weight * smaller * smaller)
        inverse_cost = (1.0 - weight) * (self.inverse_cost + weight * smaller * dearer_s)
        inverse, cost_s = self.inverse + weight * smaller, self.cost_s + weight * dearer_s
        count = min(self.count + warm, BATCHES)
        prior_s = self.prior_s if overhead_s is None else overhead_s
        # A smaller batch that took longer than expected shows that no task is as fast as once.
        least_s = took_s if overhead_s is not None else min(self.least_s, took_s)
        if overhead_s is None:
            overhead_s = prior_s
            if inverse_inverse > 0.0:
                found_s = max(0.0, inverse_cost / inverse_inverse)
                variety, doubt = inverse_inverse**2, (DOUBT * inverse**2) ** 2
                # A line through two batches, of which one was slow, has any slope.
                known = min(1.0, count / (2.0 * LINE_BATCHES)) if prior_s else 1.0
                overhead_s += known * variety / (variety + doubt) * (found_s - prior_s)
        return StageCost(
            self.tasks,
            min(overhead_s, MOST_OVERHEAD * least_s),
            least_s,
            self.last_size + FAST * (size - self.last_size),
            self.last_took_s + FAST * (took_s - self.last_took_s),
            count,
            inverse,
            cost_s,
            inverse_inverse,
            inverse_cost,
            prior_s=prior_s,
            beside=self.beside,
        )


def length_s(stages: Sequence[tuple[int, float, bool]], slots: float) -> float:
    """How long stages take of which tasks, core-seconds and "beside the one before" are given.

    Two stages of 8 tasks of 1 s each take nearly 2 rounds each on 6 slots, 3 if they share them:

    >>> [round(length_s([(8, 8.0, False), (8, 8.0, beside)], 6), 1) for beside in (False, True)]
    [3.9, 3.1]
    """
    total_s, tasks, work_s = 0.0, 0, 0.0
    for count, own_s, beside in stages:
        if not beside and tasks:
            total_s, tasks, work_s = total_s + rounds(tasks, slots) * work_s / tasks, 0, 0.0
        tasks, work_s = tasks + count, work_s + own_s
    return total_s + rounds(tasks, slots) * work_s / tasks if tasks else total_s


def rounds(tasks: int, slots: float) -> float:
    """How many tasks one slot runs: five on four slots take two rounds.

    Of many rounds the last is half full on average, whatever the number of tasks.

    >>> rounds(5, 4), rounds(100, 4)
    (2.0, 25.5)
    """
    even = tasks / slots
    many = min(1.0, even / MANY_ROUNDS)
    return many * (even + 0.5) + (1.0 - many) * ceil(even)


def driver_s(batch: Batch) -> float:
    """The time of a batch in which none of its stages ran.

    >>> stages = (BatchStage(12, 4.0, 0.2, 1.2), BatchStage(6, 1.0, 1.1, 1.6))
    >>> round(driver_s(Batch(0, 0.0, 2.0, 100, stages=stages)), 3)
    0.6
    """
    return max(0.0, batch.duration_s - span_s(batch.stages))


def span_s(stages: Sequence[BatchStage]) -> float:
    """The time in which at least one of the stages ran."""
    total_s, until_s = 0.0, 0.0
    for stage in sorted(stages, key=lambda one: one.begin_s):
        total_s += max(0.0, stage.end_s - max(stage.begin_s, until_s))
        until_s = max(until_s, stage.end_s)
    return total_s


def learn_stages(
    known: Sequence[StageCost], batch: Batch, warm: float = 1.0
) -> tuple[StageCost, ...]:
    """The stages with one more batch. With other stages than before, all is learned from it."""
    if len(known) != len(batch.stages):
        known = [StageCost(stage.tasks) for stage in batch.stages]
    # A stage that needs what another writes begins after it; others take the slots that are free.
    besides = [stage.begin_s < before.end_s for before, stage in pairwise(batch.stages)]
    known = [
        replace(one, beside=is_so) for one, is_so in zip(known, [False, *besides], strict=True)
    ]
    return tuple(
        cost.with_batch(stage.tasks, batch.input_records, stage.work_s, warm)
        for cost, stage in zip(known, batch.stages, strict=True)
    )
