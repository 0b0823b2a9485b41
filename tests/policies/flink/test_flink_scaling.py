"""How Flink's autoscaler scales, on worked numbers and what must always hold."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.policies.flink.evaluation import (
    NO_LIMIT,
    Alignment,
    Options,
    Vertex,
    VertexDemand,
    VertexLoad,
    band,
)
from penstock.policies.flink.history import (
    DelayedScaleDown,
    Pending,
    Restart,
    Scaling,
    measured_restart_s,
    restart_s,
    scaling_coefficient,
    trimmed,
)
from penstock.policies.flink.vertex import (
    VertexChange,
    align,
    decide_job,
    decide_vertex,
    gained_fraction,
    scale,
)

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
) -> VertexChange:
    demand = VertexDemand(target_rps, 0.0)
    load = VertexLoad(capacity_rps, demand, band(demand, options, restart_s=300.0))
    known: dict[str, object] = {"now_s": 0.0, **more}
    return decide_vertex(Vertex(tasks), load, options, restart_s=300.0, **known)  # type: ignore[arg-type]


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
    requests=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    back=st.integers(0, 40),
)
def test_the_queue_knows_the_largest_wish_of_any_window(requests: list[int], back: int) -> None:
    pending = Pending(0.0).with_request(DelayedScaleDown(0.0, requests[0]))
    for at_s, parallelism in enumerate(requests[1:], start=1):
        pending = pending.with_request(DelayedScaleDown(float(at_s), parallelism))
    start_s = max(0, len(requests) - 1 - back)
    assert pending.since(float(start_s)).requests[0].parallelism == max(requests[start_s:])
    assert len(pending.requests) <= len(set(requests))


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
    load = VertexLoad(
        100.0, VertexDemand(None, 0.0), band(VertexDemand(None, 0.0), PLAIN, restart_s=0.0)
    )
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
            demand = VertexDemand(target_rps, 0.0)
            loads[name] = VertexLoad(100.0, demand, band(demand, options, restart_s=0.0))
        return decide_job(vertices, loads, options, restart_s=0.0, now_s=0.0, **more).scaled  # type: ignore[arg-type]

    assert scaled(70.0, 70.0) == {}
    assert scaled(70.0, 85.0) == {"source": 12, "sink": 15}
    assert scaled(70.0, 85.0, heap_fraction=1.1) == {}
