"""The arithmetic of Flink's autoscaler, on worked numbers and on what must always hold."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, ModelError
from penstock.flink.alignment import align, scale
from penstock.flink.capacity import (
    BusyTime,
    SourceSample,
    busy_ms_per_s,
    input_rps,
    load_fraction,
    observed_rps,
    observed_series_rps,
    true_processing_rps,
)
from penstock.flink.demand import (
    Demand,
    Flow,
    band,
    edge_rps,
    is_processing_backlog,
    output_ratio,
    required_rps,
    source_demand,
)
from penstock.flink.evaluation import Load, Sample, Vertex, evaluate
from penstock.flink.history import (
    Pending,
    Restart,
    Scaling,
    Wish,
    measured_restart_s,
    restart_s,
    scaling_coefficient,
    trimmed,
)
from penstock.flink.job import Worker, decide_job, exceeds_quota, slots_after
from penstock.flink.memory import (
    WorkerMemory,
    heap_after_bytes,
    is_under_pressure,
    memory_window,
    network_segments,
    pool_bytes,
)
from penstock.flink.options import NO_LIMIT, Alignment, Options
from penstock.flink.vertex import Change, decide_vertex, gained_fraction
from penstock.flink.windows import collect, mean, rate, rounded

PLAIN = Options(
    catch_up_s=0.0,
    max_scale_down_factor=1.0,
    max_scale_up_factor=NO_LIMIT,
    scale_down_interval_s=0.0,
    utilization_target=1.0,
)


def change(
    tasks: int,
    target_rps: float,
    capacity_rps: float | None,
    options: Options = PLAIN,
    **more: object,
) -> Change:
    demand = Demand(target_rps, 0.0)
    load = Load(capacity_rps, demand, band(demand, options, restart_s=300.0))
    known: dict[str, object] = {"now_s": 0.0, **more}
    return decide_vertex(Vertex(tasks), load, options, restart_s=300.0, **known)  # type: ignore[arg-type]


# -- windows ---------------------------------------------------------------------------------------


def test_a_rate_needs_two_known_values_and_some_time() -> None:
    assert rate([(1.0, None), (2.0, 10.0), (3.0, 20.0)]) == 10.0
    assert rate([(1.0, 5.0), (2.0, None)]) is None
    assert rate([(1.0, 0.0), (1.0, 2.0)]) == 2000.0


def test_a_mean_leaves_out_what_is_unknown_or_infinite() -> None:
    assert mean([]) is None
    assert mean([inf, 4.0, None, 2.0]) == 3.0
    assert mean([inf, 4.0], at_least=2) is None


def test_metrics_have_three_decimals_but_do_not_become_zero() -> None:
    assert [rounded(x) for x in (2.0005, 0.0004, -1.2345, inf, 1e300, 0.0)] == [
        2.001,
        0.0004,
        -1.235,
        inf,
        1e300,
        0.0,
    ]


def test_a_window_starts_with_the_first_sample_of_a_settled_job() -> None:
    kept: tuple[float, ...] = ()
    sizes, full = [], []
    for now_s in (0.0, 1.0, 300.0, 301.0, 1200.0, 1201.0, 90_000.0):
        window = collect(kept, now_s, running_at_s=0.0, stabilization_s=300.0, window_s=900.0)
        kept = window.at_s
        sizes.append(len(kept))
        full.append(window.is_full)
    assert sizes == [1, 2, 3, 4, 3, 3, 1]
    assert full == [False, False, False, False, True, True, True]


def test_a_job_that_runs_anew_forgets_its_samples() -> None:
    window = collect([1.0, 2.0], 9.0, running_at_s=5.0, stabilization_s=0.0, window_s=2.0)
    assert (window.at_s, window.is_full) == ((9.0,), False)


# -- capacity --------------------------------------------------------------------------------------


def test_load_is_that_of_the_chosen_instance() -> None:
    busy = BusyTime(min=100.0, max=200.0, avg=150.0)
    assert load_fraction(busy, "min") == 0.1
    assert load_fraction(busy, "avg") == 0.15
    assert load_fraction(BusyTime(max=-5.0), "max") == 0.0
    assert load_fraction(BusyTime(), "max") is None


def test_the_mean_busy_time_comes_from_the_counter_and_is_shared_by_all_tasks() -> None:
    counter = [(1.0, 10_000.0), (2.0, 10_200.0), (3.0, 10_400.0)]
    assert busy_ms_per_s([0.2, 0.3, 0.4], counter, "avg", 2) == 100.0
    assert busy_ms_per_s([0.2, 0.3, 0.4], counter, "min", 0) == pytest.approx(300.0)
    assert busy_ms_per_s([], [], "avg", 2) is None


def test_input_is_estimated_as_the_busy_time_that_it_is_divided_by() -> None:
    counter = [(1.0, 0.0), (2.0, 100.0)]
    assert input_rps([40.0, 60.0], counter, "min") == 50.0
    assert input_rps([40.0, 60.0], counter, "avg") == 100.0
    assert input_rps([None, None], counter, "max") == 100.0


@pytest.mark.parametrize(
    ("lag", "rps", "pressed_ms", "seen"),
    [
        (500.0, 1000.0, 500.0, 123.0),
        (1e7, 500.0, 500.0, 1000.0),
        (30_000.0, 1000.0, 0.0, 1000.0),
        (29_999.0, 1000.0, 0.0, 123.0),
        (1e7, 0.0, 0.0, inf),
        (1e7, 100.0, 1000.0, 123.0),
        (1e7, None, 0.0, None),
    ],
)
def test_a_source_that_catches_up_shows_its_capacity(
    lag: float, rps: float | None, pressed_ms: float, seen: float | None
) -> None:
    assert observed_rps(lag, rps, pressed_ms, lag_threshold_s=30.0, previous_rps=123.0) == seen


def test_between_catching_up_the_mean_of_what_was_seen_is_repeated() -> None:
    series = observed_series_rps(
        [
            SourceSample(500.0, 1e6, 600.0),
            SourceSample(500.0, 0.0, 600.0),
            SourceSample(500.0, 1e5, 500.0),
            SourceSample(500.0, 0.0, 500.0),
            SourceSample(500.0, 1e6, 1000.0),
            SourceSample(0.0, 0.0),
        ],
        lag_threshold_s=30.0,
        min_observations=2,
    )
    assert series == [1250.0, None, 1000.0, 1125.0, 1125.0, inf]


def test_what_was_observed_replaces_a_busy_time_that_promises_nothing_sound() -> None:
    def capacity(busy_ms: float | None, rps: float | None, *seen: float) -> float | None:
        return true_processing_rps(busy_ms, rps, seen, switch_threshold=0.15, min_observations=2)

    assert capacity(0.0, 100.0, 200.0, 400.0) == 300.0
    assert capacity(None, 100.0, 200.0, 400.0) == 300.0
    assert capacity(0.0, 100.0, 200.0) == inf
    assert capacity(None, 100.0) is None
    assert capacity(100.0, 34.5, 200.0, 400.0) == pytest.approx(345.0)


# -- demand ----------------------------------------------------------------------------------------


def test_a_shrinking_backlog_lowers_what_arrives_but_not_below_zero() -> None:
    assert source_demand(100.0, -30.0, 60.0, 2.0) == Demand(70.0, 30.0)
    assert source_demand(100.0, -130.0, 60.0, 0.0) == Demand(0.0, 0.0)
    assert source_demand(100.0, None, 60.0, 2.0).target_rps is None


JOIN = {"left": (), "right": (), "join": ("left", "right"), "sink": ("join",)}


def test_what_one_input_gives_is_what_the_others_do_not() -> None:
    flows = {
        "left": Flow(100.0, 200.0),
        "right": Flow(100.0, 50.0),
        "join": Flow(250.0),
        "sink": Flow(50.0),
    }
    assert output_ratio(JOIN, flows, "left", "join") == 2.0
    assert output_ratio(JOIN, flows, "right", "join") == 0.5
    assert output_ratio(JOIN, flows, "join", "sink") == 0.2


def test_an_input_that_feeds_others_too_makes_the_upstream_count_its_own_output() -> None:
    inputs = {**JOIN, "audit": ("right",)}
    flows = {"left": Flow(100.0, 120.0), "right": Flow(100.0, 50.0), "join": Flow(999.0)}
    assert edge_rps(inputs, flows, "left", "join") == 120.0
    assert edge_rps(inputs, flows, "right", "join") == 999.0 - 120.0


def test_a_ratio_that_is_not_known_is_zero() -> None:
    inputs = {"a": (), "b": ("a",)}
    assert output_ratio(inputs, {"a": Flow(0.0), "b": Flow(5.0)}, "a", "b") == 0.0
    assert output_ratio(inputs, {"a": Flow(10.0), "b": Flow(None)}, "a", "b") == 0.0


def test_required_capacity_rounds_half_up_and_knows_no_limit_at_zero() -> None:
    assert required_rps(Demand(700.0, 0.0), 0.9, PLAIN) == 778.0
    assert required_rps(Demand(1.5, 0.0), 3.0, PLAIN) == 2.0
    assert required_rps(Demand(700.0, 0.0), -0.1, PLAIN) == inf
    assert required_rps(Demand(None, 0.0), 0.5, PLAIN) is None


@given(
    target_rps=st.floats(0.0, 1e6),
    catch_up_rps=st.floats(0.0, 1e6),
    target=st.floats(0.1, 0.9),
    boundary=st.floats(0.0, 0.5),
    backlog=st.booleans(),
)
def test_a_band_is_never_upside_down(
    target_rps: float, catch_up_rps: float, target: float, boundary: float, backlog: bool
) -> None:
    options = Options(utilization_target=target, boundary=boundary)
    limits = band(
        Demand(target_rps, catch_up_rps), options, restart_s=300.0, processing_backlog=backlog
    )
    assert limits.scale_up_below_rps is not None
    assert limits.scale_down_above_rps is not None
    assert limits.scale_up_below_rps <= limits.scale_down_above_rps


def test_a_backlog_counts_in_seconds_of_input() -> None:
    assert is_processing_backlog(61_000.0, 200.0, 300.0)
    assert not is_processing_backlog(60_000.0, 200.0, 300.0)
    assert is_processing_backlog(1.0, 0.0, 300.0)
    assert not is_processing_backlog(0.0, 0.0, 300.0)
    assert not is_processing_backlog(1e9, None, 300.0)


def test_operators_that_read_from_each_other_are_refused() -> None:
    vertices = {"a": Vertex(1, ("b",)), "b": Vertex(1, ("a",))}
    samples = {name: [(0.0, Sample()), (1.0, Sample())] for name in vertices}
    with pytest.raises(ModelError, match="circle"):
        evaluate(vertices, samples, PLAIN, restart_s=0.0)


# -- alignment -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "factor", "most", "lower", "upper", "partitions", "mode", "expected"),
    [
        (1, 0.0001, 720, 1, NO_LIMIT, None, "balanced", 1),
        (16, 1.5, 128, 1, NO_LIMIT, None, "balanced", 24),
        (200, 2.0, 720, 1, NO_LIMIT, None, "balanced", 400),
        (16, 1.5, 128, 1, NO_LIMIT, 0, "legacy_evenly_spread", 32),
        (6, 0.8, 720, 1, 700, 0, "legacy_evenly_spread", 5),
        (200, float(NO_LIMIT), 720, 1, 600, 0, "legacy_evenly_spread", 360),
        (10, 2.0, 720, 1, 200, 15, "legacy_evenly_spread", 15),
    ],
)
def test_a_factor_becomes_a_parallelism(
    current: int,
    factor: float,
    most: int,
    lower: int,
    upper: int,
    partitions: int | None,
    mode: Alignment,
    expected: int,
) -> None:
    keyed = partitions is not None
    vertex = Vertex(current, (), most, partitions or 0, keyed)
    assert scale(vertex, factor, lower_limit=lower, upper_limit=upper, alignment=mode) == expected


def test_legacy_modes_rather_do_nothing_than_turn_around() -> None:
    vertex = Vertex(22, (), 128, 35, keyed=True)
    limits = {"lower_limit": 20, "upper_limit": 30}
    assert align(vertex, 25, alignment="legacy_evenly_spread", **limits) == 22
    assert align(vertex, 25, alignment="evenly_spread", **limits) == 25
    narrow = Vertex(5, (), 8, 12)
    assert align(narrow, 7, alignment="legacy_evenly_spread") == 6


def test_limits_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="500"):
        scale(Vertex(200), 1.0, lower_limit=500, upper_limit=499)


@given(
    current=st.integers(1, 60),
    target=st.integers(1, 60),
    groups=st.integers(1, 200),
    mode=st.sampled_from(["balanced", "evenly_spread", "off"]),
)
def test_alignment_keeps_the_direction_and_never_gives_less_than_asked(
    current: int, target: int, groups: int, mode: Alignment
) -> None:
    aligned = align(Vertex(current, (), NO_LIMIT, groups), target, alignment=mode)
    assert aligned >= target
    assert (aligned > current) == (target > current)
    if aligned != target:
        assert groups % aligned == 0 or groups // aligned < groups // target


# -- history ---------------------------------------------------------------------------------------


@given(
    wishes=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    back=st.integers(0, 40),
)
def test_the_queue_knows_the_largest_wish_of_any_window(wishes: list[int], back: int) -> None:
    pending = Pending.begin(Wish(0.0, wishes[0]))
    for at_s, parallelism in enumerate(wishes[1:], start=1):
        pending = pending.with_wish(Wish(float(at_s), parallelism))
    start_s = max(0, len(wishes) - 1 - back)
    assert pending.since(float(start_s)).wishes[0].parallelism == max(wishes[start_s:])
    assert len(pending.wishes) <= len(set(wishes))


def test_the_latest_restart_is_kept_however_old() -> None:
    records = [Restart(0.0), Restart(100.0)]
    assert trimmed(records, 1e6, keep_s=60.0, keep_count=3) == ()
    latest = trimmed(records, 1e6, keep_s=60.0, keep_count=3, keep_latest=True)
    assert latest == (Restart(100.0),)
    assert trimmed([], 0.0, keep_s=60.0, keep_count=3, keep_latest=True) == ()


def test_the_limit_caps_measured_restarts_and_not_the_configured_one() -> None:
    assert restart_s([], Options(track_restarts=True)) == 300.0
    assert restart_s([180.0, 1200.0], Options()) == 300.0
    assert restart_s([60.0], Options(restart_s=2000.0)) == 2000.0
    assert restart_s([None, 180.0], Options(track_restarts=True)) == 180.0


def test_a_restart_counts_only_at_the_wanted_parallelism() -> None:
    assert measured_restart_s(10.0, 70.0, [2, 3], [2, 4]) is None


def test_scaling_is_taken_to_be_linear_until_enough_was_seen() -> None:
    def coefficient(*past: tuple[int, float | None], least: int = 2) -> float:
        return scaling_coefficient(past, min_observations=least, coefficient_min=0.5)

    assert coefficient() == 1.0
    assert coefficient((2, 80.0), (4, 100.0), least=3) == 1.0
    assert coefficient((2, 80.0), (4, 100.0)) == 0.7
    assert coefficient((2, 80.0), (4, None)) == 1.0
    assert coefficient((2, 100.0), (4, 300.0)) == 1.0
    assert coefficient((1, 100.0), (100, 100.0)) == 0.5


# -- one vertex ------------------------------------------------------------------------------------


def test_nothing_known_means_no_change() -> None:
    assert change(10, 100.0, None).cause == "unknown"
    load = Load(100.0, Demand(None, 0.0), band(Demand(None, 0.0), PLAIN, restart_s=0.0))
    assert decide_vertex(Vertex(4), load, PLAIN, restart_s=0.0, now_s=0.0).parallelism == 4


def test_an_idle_vertex_shrinks_as_far_as_one_step_may() -> None:
    options = Options(scale_down_interval_s=0.0, max_scale_down_factor=0.6)
    assert change(10, 0.0, inf, options).parallelism == 4
    assert change(10, 0.0, inf).parallelism == 1


def test_a_vertex_outside_its_limits_may_stay_there() -> None:
    options = Options(catch_up_s=0.0, vertex_max=10, utilization_target=1.0)
    assert change(12, 500.0, 100.0, options).parallelism == 12
    low = Options(catch_up_s=0.0, vertex_min=5, scale_down_interval_s=0.0)
    assert change(4, 100.0, 500.0, low).parallelism == 4


def test_a_scale_up_that_brought_too_little_is_not_repeated() -> None:
    past = [Scaling(0.0, 10, 20, 90.0, 180.0)]
    options = Options(
        catch_up_s=0.0, utilization_target=1.0, effectiveness_enabled=True, max_scale_up_factor=9.0
    )
    assert change(20, 180.0, 98.0, options, past=past).cause == "ineffective"
    assert change(20, 180.0, 100.0, options, past=past).parallelism == 36
    assert change(10, 180.0, 90.0, options, past=past).parallelism == 20
    assert gained_fraction(Scaling(0.0, 20, 10, 90.0, 45.0), 10, 50.0) is None
    assert gained_fraction(Scaling(0.0, 10, 20), 20, 50.0) is None


def test_a_scale_down_waits_and_then_takes_the_largest_wish() -> None:
    options = Options(catch_up_s=0.0, utilization_target=1.0, scale_down_interval_s=60.0)
    pending = None
    got = []
    for now_s, target_rps in ((0.0, 800.0), (10.0, 900.0), (40.0, 720.0), (60.0, 700.0)):
        result = change(100, target_rps, 1000.0, options, now_s=now_s, pending=pending)
        pending = result.pending
        got.append(result.parallelism)
    assert got == [100, 100, 100, 90]


def test_no_wish_to_shrink_or_one_to_grow_ends_the_waiting() -> None:
    options = Options(catch_up_s=0.0, utilization_target=1.0, scale_down_interval_s=60.0)
    waiting = change(100, 800.0, 1000.0, options).pending
    assert waiting is not None
    assert change(100, 1000.0, 1000.0, options, now_s=12.0, pending=waiting).pending is None
    assert change(100, 1700.0, 1000.0, options, now_s=12.0, pending=waiting).pending is None


@given(
    tasks=st.integers(1, 100),
    target_rps=st.floats(0.0, 1e5),
    capacity_rps=st.floats(1.0, 1e5),
)
def test_one_step_stays_within_its_factors(
    tasks: int, target_rps: float, capacity_rps: float
) -> None:
    options = Options(scale_down_interval_s=0.0, max_scale_up_factor=1.0, alignment="off")
    new = change(tasks, target_rps, capacity_rps, options).parallelism
    assert ceil(tasks * (1.0 - options.max_scale_down_factor)) <= new <= max(tasks, 2 * tasks)


# -- the job ---------------------------------------------------------------------------------------


def test_one_vertex_outside_its_band_moves_all() -> None:
    options = Options(
        catch_up_s=0.0, scale_down_interval_s=0.0, utilization_target=0.6, boundary=0.2
    )
    vertices = {"source": Vertex(10), "sink": Vertex(10, ("source",))}

    def scaled(source_rps: float, sink_rps: float, **more: float) -> dict[str, int]:
        loads = {}
        for name, target_rps in (("source", source_rps), ("sink", sink_rps)):
            demand = Demand(target_rps, 0.0)
            loads[name] = Load(100.0, demand, band(demand, options, restart_s=0.0))
        return decide_job(vertices, loads, options, restart_s=0.0, now_s=0.0, **more).scaled  # type: ignore[arg-type]

    assert scaled(70.0, 70.0) == {}
    assert scaled(70.0, 85.0) == {"source": 12, "sink": 15}
    assert scaled(70.0, 85.0, heap_fraction=1.1) == {}


def test_slots_are_shared_if_they_were() -> None:
    assert slots_after({"a": 2, "b": 3}, {"b": 1}, 3) == 2
    assert slots_after({"a": 2, "b": 3}, {"b": 1}, 4) == 3


def test_a_quota_does_not_hinder_what_needs_no_more_workers() -> None:
    worker = Worker(slots=2, cpu=2.0, memory_bytes=2.0)
    groups = [["a"], ["b"]]
    current = {"a": 4, "b": 4}
    assert not exceeds_quota(current, {"a": 4, "b": 5}, groups, worker, cpu_quota=1.0)
    assert exceeds_quota(current, {"a": 6, "b": 6}, groups, worker, cpu_quota=11.0)
    assert not exceeds_quota(current, {"a": 6, "b": 6}, groups, worker, cpu_quota=12.0)
    assert exceeds_quota(current, {"a": 6, "b": 6}, groups, worker, memory_quota_bytes=11.0)
    assert not exceeds_quota(current, {"a": 60}, [], worker, cpu_quota=1.0)


# -- memory ----------------------------------------------------------------------------------------


def test_garbage_collection_is_judged_now_and_the_heap_on_average() -> None:
    samples = [
        WorkerMemory(),
        WorkerMemory(gc_fraction=0.6, heap_fraction=0.5, slots_used=3.0),
        WorkerMemory(gc_fraction=0.8, heap_fraction=0.7),
    ]
    window = memory_window(samples)
    assert window.gc_fraction.current == 0.8
    assert (window.heap_fraction.current, window.heap_fraction.average) == (0.7, 0.6)
    assert window.slots_used.current is None
    options = Options(gc_threshold=0.5, heap_threshold=0.8)
    assert is_under_pressure(0.49, 0.81, options)
    assert not is_under_pressure(0.49, 0.79, options)
    assert not is_under_pressure(None, None, options)


def test_pools_take_what_they_need_and_no_more_than_is_left() -> None:
    assert pool_bytes(104_857_600, 0.2, inf) == 125_829_120
    assert heap_after_bytes(10, workers_before=10, workers_after=20, budget_bytes=30) == 10
    assert heap_after_bytes(10, workers_before=40, workers_after=10, budget_bytes=5) == 15


def test_a_channel_leads_to_each_task_that_is_connected() -> None:
    buffers = {"buffers_per_channel": 2, "floating_buffers": 8}
    assert network_segments(10, 10, "forward", **buffers) == 10
    assert network_segments(10, 15, "forward", **buffers) == 12
    assert network_segments(15, 10, "rescale", **buffers) == 10
    assert network_segments(10, 15, "hash", **buffers) == 38
