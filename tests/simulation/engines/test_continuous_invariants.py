"""The Flink-like engine: exact, conserved, and the same again."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Operator
from penstock.simulation.engines.engine import Curve, Outcome, SimulatedJob
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    Fault,
    SkewSetsIn,
    SlowExecutor,
    SlowStart,
    SourceOutage,
    SourceSilence,
)
from tests.simulation.engines.plain_flow import PLAIN, backlog, run, value_at


def test_a_job_can_be_written_down_and_read_back() -> None:
    job: SimulatedJob = msgspec.convert(
        {"restart_s": 9, "startup": {"longest_s": 60}}, ContinuousJob
    )
    assert job == ContinuousJob(restart_s=9.0, startup=Startup(10.0, 60.0))
    assert job.engine_name == "continuous"
    with pytest.raises(msgspec.ValidationError, match="partitions"):
        msgspec.convert({"partitions": 0}, ContinuousJob)


def test_a_run_without_seconds_is_over_at_once() -> None:
    engine = run([])
    assert engine.read(0.0).backlog_records == 0.0
    assert engine.finish().departures == Curve([0.0], [0.0])


def test_delays_are_those_of_a_simulation_record_by_record() -> None:
    """One server, whole records: the k-th leaves when it and all before it are served."""
    rates = [3.0, 9.0, 0.0, 12.0, 1.0, 1.0, 0.0, 7.0, 2.0, 0.0, 0.0, 0.0]
    job = ContinuousJob(
        operators=(Operator("only", 0.2),),
        contention=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
    )
    engine = job.start(rates, executors=1, seed=1)
    for tick in range(1, 30):
        engine.read(tick * 0.4)  # reads must leave no trace
    outcome = engine.finish()
    # Slice each record into 2,000 grains so that the queue of grains is as good as fluid.
    grain, free_at_s, worst = 1 / 2000, 0.0, 0.0
    for second, rate in enumerate(rates):
        grains = round(rate / grain)
        for i in range(grains):
            free_at_s = max(free_at_s, second + i / grains) + 0.2 * grain
            number = (round(sum(rates[:second]) / grain) + i + 1) * grain
            at_s = _when(outcome.departures, number - grain / 2)
            worst = max(worst, abs(at_s - free_at_s))
    assert worst < 0.001


def _when(curve: Curve, number: float) -> float:
    after = bisect_left(curve.records, number)
    before = after - 1
    part = (number - curve.records[before]) / (curve.records[after] - curve.records[before])
    return curve.at_s[before] + part * (curve.at_s[after] - curve.at_s[before])


FAULTS = st.lists(
    st.one_of(
        st.builds(ExecutorLost, at_s=st.floats(0.0, 200.0), count=st.integers(1, 3)),
        st.builds(SlowExecutor, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(CapacityDrop, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SkewSetsIn, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SourceOutage, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(SourceSilence, at_s=st.floats(0, 200), duration_s=st.floats(0, 90)),
        st.builds(FailedStart, at_s=st.floats(0, 200), probability=st.floats(0, 1)),
        st.builds(SlowStart, at_s=st.floats(0, 200), factor=st.floats(1, 5)),
    ),
    max_size=4,
)
MOVES = st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(-1, 8)), max_size=12)
RATES = st.lists(st.floats(0.0, 6000.0), min_size=3, max_size=12).map(
    lambda levels: [level for level in levels for _ in range(ceil(200 / len(levels)))]
)
NOISY = ContinuousJob(
    operators=PLAIN.operators, speed_spread=0.2, capacity_noise=0.2, startup=Startup(0.0, 20.0)
)


@given(RATES, MOVES, FAULTS, st.integers(0, 3))
def test_records_are_conserved_whatever_happens(
    rates: list[float], moves: list[tuple[float, int]], faults: list[Fault], seed: int
) -> None:
    engine = run(rates, job=NOISY, faults=faults, seed=seed)
    seen: list[tuple[float, float]] = []
    now_s = 0.0
    for wait_s, target in moves:
        now_s += wait_s
        snapshot = engine.read(now_s)
        if snapshot.backlog_records is not None and now_s <= len(rates):
            seen.append((now_s, snapshot.backlog_records))
        engine.apply(target, now_s)
    outcome = engine.finish()
    arrivals, departures = outcome.arrivals, outcome.departures
    assert departures.at_s == sorted(departures.at_s)
    assert departures.records == sorted(departures.records)
    assert departures.at_s[-1] == arrivals.at_s[-1] == len(rates)
    scale = 1e-9 * max(1.0, arrivals.records[-1])
    for at_s, gone in zip(departures.at_s, departures.records, strict=True):
        assert gone <= value_at(arrivals, at_s) + scale
    for at_s, waiting in seen:
        arrived = value_at(arrivals, at_s)
        assert arrived == pytest.approx(value_at(departures, at_s) + waiting, abs=scale)


@given(RATES, MOVES, FAULTS)
def test_the_same_seed_gives_the_same_run(
    rates: list[float], moves: list[tuple[float, int]], faults: list[Fault]
) -> None:
    def outcome() -> Outcome:
        engine, now_s = run(rates, job=NOISY, faults=faults, seed=7), 0.0
        for wait_s, target in moves:
            now_s += wait_s
            engine.read(now_s)
            engine.apply(target, now_s)
        return engine.finish()

    assert outcome() == outcome()


def test_another_seed_gives_another_run() -> None:
    first = run([3000.0] * 60, job=NOISY, seed=1).finish()
    assert first.departures != run([3000.0] * 60, job=NOISY, seed=2).finish().departures


@given(RATES, st.lists(st.floats(0.0, 200.0), max_size=30))
def test_reading_changes_nothing(rates: list[float], reads: list[float]) -> None:
    watched, alone = run(rates, job=NOISY), run(rates, job=NOISY)
    for at_s in sorted(reads):
        watched.read(at_s)
    seen, unseen = watched.finish(), alone.finish()
    scale = 1e-9 * max(1.0, seen.arrivals.records[-1])
    for at_s in range(len(rates) + 1):
        expected = pytest.approx(value_at(unseen.departures, float(at_s)), abs=scale)
        assert value_at(seen.departures, float(at_s)) == expected


def test_half_second_reads_see_a_backlog_grow_inside_a_second() -> None:
    engine = run([0.0] * 5 + [4000.0] * 5)
    assert [backlog(engine, 5.0 + tick / 2) for tick in range(4)] == pytest.approx(
        [0.0, 1000.0, 2000.0, 3000.0]
    )
