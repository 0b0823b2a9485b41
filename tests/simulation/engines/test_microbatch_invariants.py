"""A simulated Spark job: exact, conserved, the same again, and sound at the edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import sin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.simulation.engines.engine import Curve, Outcome
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.simulation.engines.stages import Stage
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
    with_silence,
)
from tests.simulation.engines.plain_batches import PLAIN, delay_s


def test_delays_are_those_of_each_single_record() -> None:
    rates = [float(40 + round(30 * sin(second))) for second in range(60)]
    job = msgspec.structs.replace(PLAIN, stages=(Stage("map", 4, 0.03, task_overhead_s=0.02),))
    outcome = job.start(rates, executors=1, seed=1).finish()
    # Record by record, by hand: 2 waves of 4 tasks, so 0.24 s and 15 ms per record. A batch that
    # starts between two arrivals pays for the part of a record that has come.
    arrived_s = [
        second + (place + 1) / rate
        for second, rate in enumerate(rates)
        for place in range(int(rate))
    ]
    departed_s: list[float] = []
    now_s = upto = 0.0
    while now_s < 60.0:
        before = upto
        upto = sum(rate * min(1.0, max(0.0, now_s - second)) for second, rate in enumerate(rates))
        end_s = now_s + (0.2 + 2 * 0.02 + (upto - before) * 0.015 if upto > before else 0.1)
        departed_s += [end_s] * (int(upto + 1e-6) - len(departed_s))
        now_s = max((now_s // 2.0 + 1.0) * 2.0, end_s)
    by_hand = [
        departure - arrival
        for arrival, departure in zip(arrived_s, departed_s, strict=False)
        if departure <= 60.0
    ]
    engine = [delay_s(outcome, record + 1.0) for record in range(len(by_hand))]
    assert engine == pytest.approx(by_hand, abs=1e-6)
    assert len(by_hand) > 2000
    assert max(by_hand) > 4.0  # some batches were late


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def run(seed: int) -> Outcome:
        engine = MicroBatchJob().start([50_000.0] * 300, executors=5, seed=seed)
        engine.apply(7, 60.0)
        return engine.finish()

    assert run(1) == run(1)
    assert run(1).departures != run(2).departures


def test_how_often_it_is_read_does_not_change_the_run() -> None:
    def run(every_s: float) -> Outcome:
        faults: list[Fault] = [ExecutorLost(at_s=100.3), CapacityDrop(at_s=150.0)]
        engine = MicroBatchJob().start([60_000.0] * 300, executors=7, seed=3, faults=faults)
        for turn in range(1, int(300 / every_s) + 1):
            engine.read(turn * every_s)
        return engine.finish()

    assert run(0.5) == run(15.0) == run(300.0)


def test_task_time_adds_up_however_often_it_is_read() -> None:
    def task_time_s(every_s: float) -> dict[str, float]:
        faults: list[Fault] = [ExecutorLost(at_s=100.7), SlowExecutor(at_s=130.0, duration_s=40.0)]
        run = MicroBatchJob().start([30_000.0] * 240, executors=6, seed=3, faults=faults)
        spent_s: dict[str, float] = {}
        for turn in range(1, int(240 / every_s) + 1):
            for one in run.read(turn * every_s).executors:
                task_s = (one.busy_fraction or 0.0) * 2 * every_s
                spent_s[one.id] = spent_s.get(one.id, 0.0) + task_s
            if turn * every_s in (30.0, 180.0):
                run.apply(8 if turn * every_s == 30.0 else 5, turn * every_s)
        return {name: spent for name, spent in spent_s.items() if spent > 0.0}

    often, seldom = task_time_s(1.0), task_time_s(15.0)
    assert len(seldom) == 9  # six, two more, and one in place of the dead
    # Who dies between two readings takes the last seconds with it.
    lost = {name for name in seldom if often[name] != pytest.approx(seldom[name])}
    assert len(lost) == 1
    # 30,000 records/s at 150 us, 6 % dearer, and 392 tasks of 1 ms per batch: about 5 s a second.
    assert sum(often.values()) == pytest.approx(240 * (30_000 * 160e-6 + 0.2), rel=0.05)


def test_faults_that_leave_nothing_stop_the_job_but_not_the_run() -> None:
    for fault in (CapacityDrop(at_s=20.0, fraction=1.0), SlowExecutor(20.0, speed_fraction=0.0)):
        run = PLAIN.start([1000.0] * 60, executors=2, seed=1, faults=[fault])
        assert run.read(60.0).backlog_records == pytest.approx(42_000.0)
        assert run.finish().departures.records[-1] == pytest.approx(18_000.0)


def test_after_its_end_a_run_stands_still() -> None:
    run = PLAIN.start([1000.0] * 11, executors=2, seed=1)
    assert run.read(11.0).backlog_records == 3000.0
    later = run.read(20.0)
    assert (later.arrival_rps, later.throughput_rps) == (0.0, 0.0)
    assert later.backlog_records == 3000.0
    assert later.delay_s == pytest.approx(12.0)


def test_an_empty_load_does_nothing() -> None:
    assert PLAIN.start([], executors=2, seed=1).finish().departures == Curve([0.0, 0.0], [0.0, 0.0])
    idle = PLAIN.start([0.0] * 60, executors=16, seed=1).read(60.0)
    assert (idle.arrival_rps, idle.throughput_rps, idle.delay_s) == (0.0, 0.0, 0.0)
    assert {one.busy_fraction for one in idle.executors} == {0.0}
    assert {stage.service_time_s for stage in idle.operators} == {None}


def test_the_first_rate_after_an_outage_is_the_mean_over_it() -> None:
    outage = SourceOutage(at_s=10.0, duration_s=30.0)
    run = PLAIN.start([100.0] * 20 + [500.0] * 40, executors=2, seed=1, faults=[outage])
    run.read(5.0)
    assert run.read(20.0).arrival_rps is None
    # From 5 to 45 s: 15 s at 100/s and 25 s at 500/s.
    assert run.read(45.0).arrival_rps == pytest.approx((1500 + 12_500) / 40)


def test_a_fractional_trigger_keeps_its_grid() -> None:
    job = msgspec.structs.replace(PLAIN, trigger_interval_s=0.3)
    batches = job.start([10.0] * 600, executors=4, seed=1).read(600.0).batches
    assert len(batches) == 2000
    assert batches[-1].started_at_s == pytest.approx(1999 * 0.3)


def test_a_job_without_stages_or_trigger_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one stage"):
        MicroBatchJob(stages=())
    with pytest.raises(ConfigError, match="must be positive, not 0"):
        MicroBatchJob(trigger_interval_s=0.0)


FAULTS = st.one_of(
    st.builds(ExecutorLost, at_s=st.floats(0, 150), count=st.integers(1, 3)),
    st.builds(SlowExecutor, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(FailedStart, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(SlowStart, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(CapacityDrop, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(SkewSetsIn, st.floats(0, 150), st.floats(1, 80), st.floats(0, 1)),
    st.builds(SourceOutage, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
    st.builds(SourceSilence, at_s=st.floats(0, 150), duration_s=st.floats(1, 80)),
)


@given(
    rates=st.lists(st.floats(0, 60_000), min_size=1, max_size=12),
    targets=st.lists(st.integers(0, 6), max_size=12),
    every_s=st.sampled_from([0.5, 7.0, 15.0]),
    faults=st.lists(FAULTS, max_size=3),
    cap=st.sampled_from([None, 50_000.0]),
)
def test_records_are_conserved_whatever_happens(
    rates: list[float],
    targets: list[int],
    every_s: float,
    faults: list[Fault],
    cap: float | None,
) -> None:
    job = MicroBatchJob(max_offsets_per_trigger=cap)
    load = [rate for rate in rates for _ in range(15)]
    run = job.start(load, executors=2, seed=1, faults=faults)
    arrived = processed = 0.0
    taken = turns = 0
    while (now_s := (turns + 1) * every_s) <= len(load):
        seen = run.read(now_s)
        processed += (seen.throughput_rps or 0.0) * every_s
        taken += sum(batch.input_records for batch in seen.batches)
        assert taken == pytest.approx(processed, abs=1.001)
        if seen.backlog_records is not None:
            arrived = at_time(run_arrivals(load, faults), now_s)
            assert arrived == pytest.approx(processed + seen.backlog_records, abs=0.01)
        assert all(0.0 <= (one.busy_fraction or 0.0) <= 1.0 for one in seen.executors)
        assert seen.fleet.active <= seen.fleet.registered
        if turns < len(targets):
            run.apply(targets[turns], now_s)
        turns += 1
    outcome = run.finish()
    assert outcome.departures.records == sorted(outcome.departures.records)
    assert outcome.departures.at_s == sorted(outcome.departures.at_s)
    for at_s, records in zip(outcome.departures.at_s, outcome.departures.records, strict=True):
        assert records <= at_time(outcome.arrivals, at_s) + 1e-3
    assert all(level.executors >= 0 for level in outcome.paid)


def run_arrivals(rates: Sequence[float], faults: Sequence[Fault]) -> Curve:
    seconds = [float(second) for second in range(len(rates) + 1)]
    return Curve(seconds, list(accumulate(with_silence(rates, faults), initial=0.0)))


def at_time(curve: Curve, now_s: float) -> float:
    """How many records a curve with a point per second has at an instant."""
    second = min(int(now_s), len(curve.records) - 2)
    low, high = curve.records[second], curve.records[second + 1]
    return low + (high - low) * (now_s - second)
