"""What the default policy believes and asks for in the first minute of real runs.

Java compiles code while it runs, Spark's first batches are small, and some are not measured at all.
None of that is a cost of the data, and a fleet that grows because of it holds the job up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.journal import read_last_run
from penstock.core.model import Snapshot, Step
from penstock.lab.replay import replay
from penstock.policies.penstock.capacity import Capacity, learn
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.testbed.demo.plan import DemoPlan, with_scaled_time
from tests.recorded.test_recorded import replayed

DIRECTORY = Path(__file__).parent / "paced"
#: Runs that begin with five executors near their capacity. Six would have been enough for all.
NEAR_CAPACITY = ["q1-late", "q1-wave", "q11-fixed", "q11-late"]
FIRST_S = 60.0


def steps_of(journal: str) -> list[Step]:
    past, steps = read_last_run(DIRECTORY / f"{journal}.jsonl")
    return [*past, *steps]


def estimates(journal: str) -> list[tuple[Snapshot, CapacityEstimate]]:
    """What is known after each turn."""
    known, before, found = CapacityEstimate(), None, list[tuple[Snapshot, CapacityEstimate]]()
    for step in steps_of(journal):
        if (seen := step.snapshot) is not None:
            known, before = learn(known, seen, before), seen
            found.append((seen, known))
    return found


@pytest.mark.parametrize("journal", NEAR_CAPACITY)
def test_the_capacity_of_the_first_minute_is_about_that_of_later_or_is_in_doubt(
    journal: str,
) -> None:
    found = estimates(journal)
    begin_s, last = found[0][0].at_s, Capacity(found[-1][1], 1)
    early = [known for seen, known in found if seen.at_s - begin_s < FIRST_S and known.work_s]
    assert len(early) > 5
    for capacity in (Capacity(known, 1) for known in early):
        # Too much is never believed; where it is too little, it is said by how much.
        assert capacity.rps(5) < 1.3 * last.rps(5)
        assert max(0.3, capacity.doubt) > 1.0 - capacity.rps(5) / last.rps(5)


@pytest.mark.parametrize("journal", NEAR_CAPACITY)
def test_one_executor_more_is_asked_for_where_one_would_do(journal: str) -> None:
    spec = with_scaled_time("penstock", DemoPlan("q1", 240))
    steps = replay(steps_of(journal), spec)
    early = [step for step in steps if step.at_s - steps[0].at_s < FIRST_S and step.snapshot]
    grown = [step.decision.wanted_executors - step.snapshot.fleet.target for step in early]  # type: ignore[union-attr]
    assert max(grown) <= 1, [step.decision.reasons[0].text for step in early]


@pytest.mark.parametrize(("journal", "within_s"), [("udf-overload", 40.0), ("udf-drowning", 20.0)])
def test_a_job_that_is_overloaded_from_its_start_grows_at_once(
    journal: str, within_s: float
) -> None:
    steps = replayed("penstock", journal)
    early = [step for step in steps if step.at_s - steps[0].at_s <= within_s and step.snapshot]
    assert any(
        step.decision.wanted_executors > step.snapshot.fleet.target  # type: ignore[union-attr]
        for step in early
    )


def test_after_one_wave_the_fleet_does_not_grow_for_a_second() -> None:
    """The demo of two minutes: 400/s, a wave of 2.6 k/s, and 400/s again on six executors."""
    spec = with_scaled_time("penstock", DemoPlan("q11", 120))
    steps = replay(steps_of("q11-to-a-sixth"), spec)
    half = steps[len(steps) // 2 :]
    low = [one for one in half if one.snapshot and (one.snapshot.arrival_rps or 0.0) < 600.0]
    assert len(low) > 5
    for step in low:
        assert step.decision.wanted_executors <= step.snapshot.fleet.target, (  # type: ignore[union-attr]
            step.decision.reasons[0].text
        )
