"""Koper's next generation: lag says when, the best throughput ever seen says how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import executors, rate
from penstock.policies.algorithms.dataflow import with_margin
from penstock.policies.algorithms.measurements import excess_delay_s, hold, missing

#: Sizes that are remembered; beyond that the one that is farthest from the present is forgotten.
MOST_SIZES = 256


class Best(Struct, frozen=True, gc=False, array_like=True):
    """The highest throughput that a fleet of this size has shown."""

    executors: int
    throughput_rps: float

    @property
    def rps_per_executor(self) -> float:
        return self.throughput_rps / self.executors


class ThroughputTableMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """One row per size that was seen under lag."""

    table: tuple[Best, ...] = ()

    def nearest(self, executors: int) -> Best | None:
        """The row of this size, or of the nearest that is known."""
        return min(self.table, key=lambda row: abs(row.executors - executors), default=None)

    def learn(self, executors: int, throughput_rps: float) -> ThroughputTableMemory:
        """The table that has also seen this throughput."""
        old = next((row for row in self.table if row.executors == executors), None)
        if old is not None and old.throughput_rps >= throughput_rps:
            return self
        rows = [row for row in self.table if row.executors != executors]
        if len(rows) >= MOST_SIZES:
            rows.remove(max(rows, key=lambda row: abs(row.executors - executors)))
        return ThroughputTableMemory((*rows, Best(executors, throughput_rps)))


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Detect by the queue, size by measurement: what a fleet really did when it had to.

    The rule: while there is lag, ``best[n] = max(best[n], throughput)``. Lag that grows: up; no
    lag: maybe down. Then ``n' = ceil(arrival x (1 + overprovisioning) / (best[n] / n))``, with
    the nearest known size in place of an unknown ``n``.
    """

    overprovisioning: Annotated[float, Meta(ge=0)] = 0.2
    up_lag_s: Annotated[float, Meta(ge=0)] = 5.0
    down_lag_s: Annotated[float, Meta(ge=0)] = 1.0
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    period_s: Annotated[float, Meta(gt=0)] = 20.0

    default_limits: ClassVar[Limits] = Limits(cooldown_s=240.0)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(ThroughputTableMemory)
        fleet = snapshot.fleet.target
        lag_s, arrival_rps = excess_delay_s(snapshot), snapshot.arrival_rps
        unknown = missing(
            delay_s=lag_s,
            arrival_rps=arrival_rps,
            throughput_rps=snapshot.throughput_rps,
            backlog_records=snapshot.backlog_records,
        )
        if lag_s is None or arrival_rps is None or unknown:
            return not_measured(fleet, *unknown, memory=memory)
        memory = self._recorded(memory, snapshot, knowledge)
        arrival_rps = knowledge.mean(lambda s: s.arrival_rps, self.window_s) or arrival_rps
        growth_rps = knowledge.slope(lambda s: s.backlog_records, self.window_s)
        late, growing = lag_s > self.up_lag_s, growth_rps is not None and growth_rps > 0.0
        evidence = {"lag_s": lag_s, "mean_arrival_rps": arrival_rps}
        if (late and not growing) or self.down_lag_s <= lag_s <= self.up_lag_s:
            why = f"{lag_s:.1f} s late and not falling behind"
            return hold(fleet, "catching_up", why, evidence, memory)
        best = memory.nearest(fleet)
        if best is None:
            why = "no throughput under lag is known yet"
            return hold(fleet, "not_learned", why, evidence, memory)
        evidence["rps_per_executor"] = best.rps_per_executor
        needed = arrival_rps / best.rps_per_executor
        wanted = max(1, with_margin(needed, 1.0 + self.overprovisioning))
        target = max(fleet, wanted) if late else min(fleet, wanted)
        state = f"{lag_s:.1f} s late and falling behind" if late else "no lag"
        text = (
            f"{state}: {rate(arrival_rps)} and {self.overprovisioning:.0%} on top need "
            f"{executors(wanted)} of {rate(best.rps_per_executor)} each"
        )
        code = "right_size" if target == fleet else "scale_up" if late else "scale_down"
        expected_rps = best.rps_per_executor * target if target != fleet else None
        reason = Reason(code, text, evidence)
        return Decision.of(target, reason, expected_rps=expected_rps, memory=memory)

    def _recorded(
        self, memory: ThroughputTableMemory, snapshot: Snapshot, knowledge: Knowledge
    ) -> ThroughputTableMemory:
        """The table with the present throughput, if that is all that the fleet can do."""
        fleet = snapshot.fleet
        rescales = knowledge.rescales
        settled_at_s = rescales[-1].at_s + self.window_s if rescales else 0.0
        if fleet.active != fleet.target or fleet.target == 0 or snapshot.at_s <= settled_at_s:
            return memory
        window = knowledge.window(self.window_s) or (snapshot,)
        same = [s for s in window if s.fleet == fleet]
        under_lag = [s for s in same if (excess_delay_s(s) or 0.0) > self.up_lag_s]
        throughput_rps = _full_rps(under_lag, settled_at_s)
        return memory.learn(fleet.target, throughput_rps) if throughput_rps > 0.0 else memory


def _full_rps(under_lag: Sequence[Snapshot], settled_at_s: float) -> float:
    """What a fleet processes when it has to; zero if that is not known.

    A micro-batch job hands in all records of a batch at once, perhaps those of minutes in one
    snapshot: there it is records over batch time, of batches that ran on this fleet throughout.
    """
    if under_lag and under_lag[-1].trigger_interval_s is not None:
        batches = [b for s in under_lag for b in s.batches if b.started_at_s >= settled_at_s]
        busy_s = sum(batch.duration_s for batch in batches)
        return sum(batch.input_records for batch in batches) / busy_s if busy_s > 0.0 else 0.0
    measured = [s.throughput_rps for s in under_lag if s.throughput_rps is not None]
    return sum(measured) / len(measured) if measured else 0.0
