"""What the default policy learns of batches, on journals of real runs with their stages.

These jobs are paced: a record waits 1 ms instead of computing, so what it costs is known.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from penstock.core.journal import read_steps
from penstock.policies.penstock.capacity import Capacity, learn
from penstock.policies.penstock.estimate import CapacityEstimate

#: Runs at the time of which the machine had other work show no cost of a record.
DISTURBED = {"q11-to-a-sixth"}
JOURNALS = sorted(
    path for path in (Path(__file__).parent / "paced").glob("*.jsonl") if path.stem not in DISTURBED
)
WARM_UP_S = 4.0  #: The time of these runs passes five times as fast.


def errors(path: Path) -> tuple[list[float], CapacityEstimate]:
    """How far off each batch was from what was expected of it before it was seen."""
    known, before, found = CapacityEstimate(), None, list[float]()
    for step in read_steps(path):
        seen = step.snapshot
        if seen is None:
            continue
        fleet = seen.fleet
        settled = before is not None and before.fleet.active == fleet.active == fleet.target
        for batch in seen.batches:
            if settled and known.work_s is not None and batch.input_records > 300:
                capacity = Capacity(known, fleet.cores_per_executor)
                expected_s = capacity.fixed_s(fleet.active)
                expected_s += batch.input_records / capacity.rps(fleet.active)
                found.append(expected_s / batch.duration_s - 1.0)
        known = learn(known, seen, before, WARM_UP_S)
        before = seen
    return found, known


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_batches_take_as_long_as_expected_at_any_load_and_fleet(path: Path) -> None:
    off, known = errors(path)
    assert len(off) > 40
    assert median(map(abs, off)) < 0.1
    assert sorted(map(abs, off))[int(0.9 * len(off))] < 0.3
    # A record waits 1 ms, and is parsed; starting a task takes some tens of milliseconds on two
    # cores, and one that has state commits it.
    assert 1e3 * sum(stage.record_s for stage in known.stages) == pytest.approx(1.15, abs=0.2)
    assert all(0.005 < stage.overhead_s < 0.25 for stage in known.stages[:1])
    assert all(0.05 < stage.overhead_s < 0.7 for stage in known.stages[1:][-1:])


def test_a_fleet_carries_as_much_when_the_load_has_fallen_to_a_sixth() -> None:
    """From 2.6 k/s to 400/s on six executors: batches shrink from 15,000 records to 800."""
    known, before, believed = CapacityEstimate(), None, list[tuple[float, float]]()
    for step in read_steps(Path(__file__).parent / "paced" / "q11-to-a-sixth.jsonl"):
        if (seen := step.snapshot) is not None:
            known, before = learn(known, seen, before, WARM_UP_S), seen
            believed.append((seen.arrival_rps or 0.0, Capacity(known, 1).rps(6)))
    full = [rps for load, rps in believed[len(believed) // 2 :] if load > 1500.0]
    low = [rps for load, rps in believed[len(believed) // 2 :] if load < 600.0]
    assert min(low) > 0.6 * min(full)


def test_dear_records_are_measured_although_they_are_few() -> None:
    """13 images/s on three executors: no batch of the first minute has a hundred records."""
    known, before = CapacityEstimate(), None
    steps = list(read_steps(Path(__file__).parent / "images-steps.jsonl"))
    for step in steps:
        if step.snapshot is not None and step.at_s - steps[0].at_s <= 60.0:
            known = learn(known, step.snapshot, before, WARM_UP_S)
            before = step.snapshot
    # A record waits 40 ms and computes for 10 ms of a core that others use too.
    assert known.work_s == pytest.approx(0.08, abs=0.04)
