"""Writes docs/results.md: how all policies do on all loads, on both engines.

    python docs/results.py [--seeds 1..5] [--hours 8] [TRACE.csv ...]

Recorded loads are given as files (five-minute values will do) and are called by the names of these;
without any, the smooth loads are those of the studies alone. Takes minutes per seed on two cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.commands.options import seed_numbers
from penstock.lab.score import Goal
from penstock.lab.tournament import ORACLE, Standing, cells, play_judged, standings
from penstock.simulation.faults import (
    CapacityDrop,
    FailedStart,
    Fault,
    SensorLate,
    SkewSetsIn,
    SlowStart,
    SourceSilence,
)

HERE = Path(__file__).parent
ENGINES = ("micro-batch", "continuous")

#: Each policy at the settings with which its study, or its users, did best.
POLICIES = (
    "penstock",
    "hpa:cpu_target=0.7",
    "hpa:cpu_target=0.8",
    "hpa:cpu_target=0.9",
    "ds2",
    "ds2_adapted",
    "flink",
    "daedalus",
    "dhalion_adapted",
    "varga",
    "keda_lag",
    "queueing",
    "backlog_threshold",
    "spark_dra",
    "dstreams_ratio",
    "static:12",
)
SMOOTH = ("sine:period=3h", "koper-q1", "koper-q3", "koper-q11", "daedalus-wordcount", "diurnal")
HARD = ("pyramid", "square:high=100k", "flash_crowd", "bursts", "random_walk", "spikes")
#: What goes wrong in the third table, on a smooth load of four hours.
FAULTS: dict[str, tuple[Fault, ...]] = {
    "sensor 30 s late": (SensorLate(),),
    "capacity falls by 30 % halfway": (CapacityDrop(at_s=7200.0),),
    "skew sets in halfway": (SkewSetsIn(at_s=7200.0),),
    "a third of the starts fails": (FailedStart(at_s=0.0, probability=0.33),),
    "executors start 4 times slower": (SlowStart(at_s=0.0, factor=4.0),),
    "source silent for 10 min": (SourceSilence(at_s=7200.0),),
}

HEAD = """\
# Results

Written by `make results`. Cost is that of `penstock compare`: executor-hours, late records and
moves. Regret is cost over that of an oracle that knows the load and the capacity to come,
less 1; it is the mean over {seeds} seeds. 16 executors at most, SLO 10 s, executors take 10 to 30 s
to start. In bold the cheapest of each column; `late` is the share of records beyond the SLO under
`penstock`.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One table: a load or a fault in each row."""

    title: str
    rows: dict[str, tuple[str, tuple[Fault, ...], float | None]]


def parts(traces: Sequence[Path], hours: float) -> Iterator[Part]:
    smooth = {load: load for load in SMOOTH}
    smooth |= {trace.stem: f"trace:{trace},hours={hours:g}" for trace in traces}
    yield Part("Smooth loads", {name: (load, (), _hours(load)) for name, load in smooth.items()})
    yield Part("Hard loads", {load: (load, (), None) for load in HARD})
    length_s: float | None = 4 * 3600.0
    yield Part("Faults", {name: ("sine:period=3h", f, length_s) for name, f in FAULTS.items()})


def _hours(load: str) -> float | None:
    return 12 * 3600.0 if load == "diurnal" else None


def play(part: Part, engine: str, seeds: Sequence[int]) -> dict[str, list[Standing]]:
    """The standings of each row, cheapest first."""
    table = {}
    for name, (load, faults, duration_s) in part.rows.items():
        grid = cells(
            [*POLICIES, ORACLE], [load], [engine], seeds, goal=Goal(), bounds={},
            duration_s=duration_s, faults=faults,
        )  # fmt: skip
        table[name] = standings(play_judged(grid))
        sys.stderr.write(f"{engine}: {name}\n")
    return table


def written(part: Part, engine: str, table: dict[str, list[Standing]]) -> str:
    """A table of regrets: a policy per row, a load per column, and the mean."""
    found = {name: {one.policy: one for one in ranking} for name, ranking in table.items()}
    best = {
        name: next(one.policy for one in ranking if one.policy != ORACLE)
        for name, ranking in table.items()
    }
    lines = [
        f"## {part.title}, {engine}", "",
        "| policy | " + " | ".join(f"`{name}`" for name in table) + " | mean |",
        "|---" * (len(table) + 2) + "|",
    ]  # fmt: skip
    means = {
        policy: sum(found[name][policy].regret or 0.0 for name in table) / len(table)
        for policy in POLICIES
    }
    for policy in sorted(POLICIES, key=means.__getitem__):
        regrets = [f"{found[name][policy].regret or 0.0:.3f}" for name in table]
        marked = [
            f"**{regret}**" if best[name] == policy else regret
            for name, regret in zip(table, regrets, strict=True)
        ]
        lines.append(f"| `{policy}` | {' | '.join(marked)} | {means[policy]:.3f} |")
    late = [f"{100 * found[name]['penstock'].late_fraction:.2f} %" for name in table]
    lines += [f"| late | {' | '.join(late)} | |", "", *_losses(found, best), ""]
    return "\n".join(lines)


def _losses(found: dict[str, dict[str, Standing]], best: dict[str, str]) -> Iterator[str]:
    """Where the default policy is not the cheapest, and what it paid more for."""
    won = sum(policy == "penstock" for policy in best.values())
    yield f"`penstock` is the cheapest on {won} of {len(best)}."
    for name, policy in best.items():
        if policy == "penstock":
            continue
        ours, theirs = found[name]["penstock"], found[name][policy]
        more = {
            "executors": ours.executor_hours - theirs.executor_hours,
            "late records": 160.0 * (ours.late_fraction - theirs.late_fraction)
            * ours.executor_hours / max(ours.mean_executors, 1e-9),
            "moves": (ours.moved_executors - theirs.moved_executors) / 60.0,
        }  # fmt: skip
        why = max(more, key=more.__getitem__)
        yield (
            f"On `{name}` `{policy}` is cheaper ({theirs.cost:.1f} against {ours.cost:.1f}); "
            f"`penstock` pays {more[why]:.1f} more for {why}."
        )


def main() -> None:
    options = argparse.ArgumentParser(description="Write docs/results.md.")
    options.add_argument("traces", nargs="*", type=Path)
    options.add_argument("--seeds", nargs="+", default=["1..3"])
    options.add_argument("--hours", type=float, default=8.0)
    given = options.parse_args()
    seeds = seed_numbers(given.seeds)
    pages = [HEAD.format(seeds=len(seeds))]
    for part in parts(given.traces, given.hours):
        pages += [written(part, engine, play(part, engine, seeds)) for engine in ENGINES]
        # What is there is worth keeping, whatever becomes of the rest.
        (HERE / "results.md").write_text("\n".join(pages), encoding="utf-8")


if __name__ == "__main__":
    main()
