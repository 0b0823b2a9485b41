"""Writes docs/ablation.md: what each part of the default policy is worth.

    python -m docs.ablation [TRACE.csv ...] [--seeds 1..3] [--hours 3] [--processes 2]

Each row is the default policy without one of its parts, on the micro-batch engine: its cost over
that of the whole policy with the same seed. Recorded loads are given as files and run for three
days, for the memory of what the load does at each time of day.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.cli.options import seed_numbers
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Snapshot
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import Scenario, run
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.days import Days
from penstock.policies.penstock.forecasters import Forecast
from penstock.policies.penstock.penstock import Penstock, PenstockMemory
from penstock.policies.penstock.planning import PlanInputs
from penstock.policies.penstock.surges import Surges
from penstock.settings.goal import Goal

PAGE = Path(__file__).parent / "ablation.md"
LOADS = (
    "sine:period=3h",
    "koper-q1",
    "diurnal",
    "bursts",
    "flash_crowd",
    "square:low=10k,high=90k",
)
HOUR_S = 3600.0
DAYS = 3


@dataclass(frozen=True, slots=True)
class WithoutForecast(Penstock):
    """The load stays as it is; how far it may be off is as in the forecast."""

    def ahead(self, seen: Sequence[Snapshot], surges: Surges) -> Forecast:
        found = super(WithoutForecast, self).ahead(seen, surges)
        now = seen[-1].arrival_rps or found.mean[0]
        return Forecast([now] * len(found.mean), found.deviation, "last")


@dataclass(frozen=True, slots=True)
class WithoutSurges(Penstock):
    """Surges are neither noticed nor remembered."""

    def _learned(self, snapshot: Snapshot, knowledge: Knowledge) -> PenstockMemory:
        return replace(super(WithoutSurges, self)._learned(snapshot, knowledge), surges=Surges())


class SureCapacity(Capacity, frozen=True, gc=False):
    """A capacity that is never in doubt."""

    def error(self, at_s: float) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class WithoutUncertainty(Penstock):
    """The forecast and the capacity are taken for the truth."""

    def ahead(self, seen: Sequence[Snapshot], surges: Surges) -> Forecast:
        found = super(WithoutUncertainty, self).ahead(seen, surges)
        return Forecast(found.mean, [0.0] * len(found.mean), found.model)

    def _inputs(self, *given: Any) -> PlanInputs:
        inputs = super(WithoutUncertainty, self)._inputs(*given)
        known = inputs.capacity
        sure = SureCapacity(known.track, known.cores, known.most)
        return dataclasses.replace(inputs, capacity=sure)


@dataclass(frozen=True, slots=True)
class WithoutAccount(Penstock):
    """Batches have a duration and no stages: all of it is for their records."""

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        batches = tuple(replace(batch, stages=()) for batch in snapshot.batches)
        return super(WithoutAccount, self).decide(replace(snapshot, batches=batches), knowledge)


@dataclass(frozen=True, slots=True)
class WithoutDays(Penstock):
    """Nothing is remembered of what the load does at each time of day."""

    def _learned(self, snapshot: Snapshot, knowledge: Knowledge) -> PenstockMemory:
        return replace(super(WithoutDays, self)._learned(snapshot, knowledge), days=Days())


ROWS: dict[str, Callable[[], Penstock]] = {
    "whole": Penstock,
    "without forecast": WithoutForecast,
    "without surges": WithoutSurges,
    "without uncertainty": WithoutUncertainty,
    "without the account of batches": WithoutAccount,
    "without times of day": WithoutDays,
}


class Cell(NamedTuple):
    """What a run came to."""

    cost: float
    late: float
    rescales: int


def play(cell: tuple[str, Scenario]) -> Cell:
    row, scenario = cell
    policy = ROWS[row]()
    score = run(scenario, policy, policy.default_limits, Goal()).score
    return Cell(score.cost, score.late_fraction, score.rescales)


def table(
    loads: dict[str, tuple[str, float]], rows: Sequence[str], seeds: Sequence[int], processes: int
) -> list[str]:
    """A Markdown table: a row without each part, a column for each load."""
    grid = [
        (row, Scenario(load, seed=seed, duration_s=length_s))
        for row, (load, length_s), seed in product(rows, loads.values(), seeds)
    ]
    found = dict(zip(grid, run_in_processes(play, grid, processes), strict=True))
    lines = [
        "| | " + " | ".join(f"`{name}`" for name in loads) + " |",
        "|---|" + "---:|" * len(loads),
    ]
    for row in rows:
        cells = []
        for load, length_s in loads.values():
            runs = [Scenario(load, seed=seed, duration_s=length_s) for seed in seeds]
            own = [found[row, one] for one in runs]
            whole = [found["whole", one] for one in runs]
            late = 100.0 * fmean(cell.late for cell in own)
            if row == "whole":
                moves = fmean(cell.rescales for cell in own)
                cells.append(f"{fmean(cell.cost for cell in own):.1f} h, {late:.2f} %, {moves:.0f}")
            else:
                more = fmean(a.cost / b.cost - 1.0 for a, b in zip(own, whole, strict=True))
                cells.append(f"{100.0 * more:+.1f} % ({late:.2f} %)")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    options = argparse.ArgumentParser(description="Write docs/ablation.md.")
    options.add_argument("traces", nargs="*", type=Path)
    options.add_argument("--seeds", default="1..3")
    options.add_argument("--hours", type=float, default=3.0)
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    seeds = seed_numbers([given.seeds])
    loads = {load: (load, HOUR_S * given.hours) for load in LOADS}
    rows = [row for row in ROWS if row != "without times of day"]
    page = [
        "# What each part of the default policy is worth",
        "",
        f"Written by `make ablation` with seeds {given.seeds}, {given.hours:g} hours, on the "
        "micro-batch engine. The first row is the whole policy: its cost in executor-hours with "
        "the prices for late records and moves, its share of late records, and its rescales. The "
        "others leave one part out: how much more they cost, and their share of late records.",
        "",
        *table(loads, rows, seeds, given.processes),
    ]
    if given.traces:
        days = {path.stem: (f"trace:{path}", DAYS * 24 * HOUR_S) for path in given.traces}
        pair = ["whole", "without times of day"]
        page += [f"{DAYS} days of recorded loads, one seed:", ""]
        page += table(days, pair, seeds[:1], given.processes)
    PAGE.write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
