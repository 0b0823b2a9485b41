"""What the default policy believes of a real job's capacity, against what saturated runs do.

    python -m benchmarks.capacity [--job q1] [--sizes 1 2 4 8]

Each size runs at 30 % and 60 % of what it would carry if batches cost only their records, then at
150 %. The policy learns from the first two. Of the batches of the third, which are as long as the
fleet makes them, it has to know how long they take. About three minutes for each size, with nothing
else on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.run import Measured, at_most, keep, show

from penstock.core.journal import read_steps
from penstock.core.model import Batch, Step
from penstock.lab.profile import SETTLING, ProfilePlan, ProfileRun, run_profile
from penstock.policies.penstock.capacity import Capacity, learn
from penstock.policies.penstock.estimate import CapacityEstimate

SHARES = (0.3, 0.6, 1.5)
GOAL = 0.1


def off(run: ProfileRun, steps: Sequence[Step]) -> float:
    """By how much saturated batches differ from what was learned before, as a median."""
    saturated_s = steps[0].at_s + run.hold_s * (len(run.held_rps) - 1)
    known, before, fleet = CapacityEstimate(), None, None
    batches: list[Batch] = []
    for step in steps:
        if (seen := step.snapshot) is None:
            continue
        fleet = seen.fleet
        if seen.at_s < saturated_s:
            known, before = learn(known, seen, before), seen
        else:
            batches += seen.batches
    late = [one for one in batches if one.started_at_s > saturated_s + SETTLING * run.hold_s]
    assert fleet is not None
    capacity = Capacity(known, fleet.cores_per_executor)
    fixed_s, rps = capacity.fixed_s(run.executors), capacity.rps(run.executors)
    ratios = [(fixed_s + one.input_records / rps) / one.duration_s for one in late]
    stages = [(round(1e3 * one.overhead_s), round(1e3 * one.record_s, 2)) for one in known.stages]
    sys.stderr.write(
        f"{run.job} on {run.executors}: expected / measured duration of {len(late)} batches "
        f"{median(ratios):.3f} (from {min(ratios):.2f} to {max(ratios):.2f}); carries {rps:.0f}/s, "
        f"ms of a task and of a record: {stages}\n"
    )
    return abs(median(ratios) - 1.0)


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def measure(job: str, sizes: Sequence[int]) -> list[Measured]:
    plan = ProfilePlan(job, tuple(sizes), SHARES)
    with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as directory:
        journals = {size: Path(directory, f"{size}.jsonl") for size in sizes}
        run_profile(plan, journals, say)
        return [
            at_most(
                f"live: {job} on {run.executors} executors, believed capacity off by",
                off(run, list(read_steps(journals[run.executors]))),
                GOAL,
            )
            for run in plan.runs()
        ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-capacity")
    parser.add_argument("--job", default="q1", help="a job of `penstock jobs`")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8])
    given = parser.parse_args()
    measured = measure(given.job, given.sizes)
    keep(measured)
    return show(measured)


if __name__ == "__main__":
    sys.exit(main())
