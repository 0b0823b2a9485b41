"""What Flink's autoscaler makes of its metrics, on worked numbers and what must always hold."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.policies.flink.capacity import (
    SourceSample,
    collect,
    mean,
    observed_rps,
    observed_series_rps,
    rate,
    rounded,
    true_processing_rps,
)
from penstock.policies.flink.evaluation import (
    NO_LIMIT,
    Flow,
    Options,
    Vertex,
    VertexDemand,
    VertexSample,
    band,
    edge_rps,
    evaluate,
    is_processing_backlog,
    output_ratio,
    required_rps,
    source_demand,
)

PLAIN = Options(
    catch_up_s=0.0,
    max_scale_down_factor=1.0,
    max_scale_up_factor=NO_LIMIT,
    scale_down_interval_s=0.0,
    utilization_target=1.0,
)


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
    sample = SourceSample(rps, lag, pressed_ms)
    assert observed_rps(sample, lambda: 123.0, lag_threshold_s=30.0) == seen


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
    assert source_demand(100.0, -30.0, 60.0, 2.0) == VertexDemand(70.0, 30.0)
    assert source_demand(100.0, -130.0, 60.0, 0.0) == VertexDemand(0.0, 0.0)
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
    assert required_rps(VertexDemand(700.0, 0.0), 0.9, PLAIN) == 778.0
    assert required_rps(VertexDemand(1.5, 0.0), 3.0, PLAIN) == 2.0
    assert required_rps(VertexDemand(700.0, 0.0), -0.1, PLAIN) == inf
    assert required_rps(VertexDemand(None, 0.0), 0.5, PLAIN) is None


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
        VertexDemand(target_rps, catch_up_rps), options, restart_s=300.0, processing_backlog=backlog
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


@pytest.mark.parametrize("input_rps", [None, 0.0, 200.0])
def test_a_lag_that_was_not_measured_counts_as_none(input_rps: float | None) -> None:
    assert not is_processing_backlog(None, input_rps, 300.0)


def test_operators_that_read_from_each_other_are_refused() -> None:
    vertices = {"a": Vertex(1, ("b",)), "b": Vertex(1, ("a",))}
    samples = {name: [(0.0, VertexSample()), (1.0, VertexSample())] for name in vertices}
    with pytest.raises(ModelError, match="cycle"):
        evaluate(vertices, samples, PLAIN, restart_s=0.0)
