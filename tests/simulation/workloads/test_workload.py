"""Workloads: worked numbers for each shape, laws of their combination, and what is refused."""

from __future__ import annotations

from math import cos, isfinite, pi, sin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.simulation.workloads.expressions import (
    NAMED,
    Phase,
    Product,
    Sequence,
    Sum,
    parse_workload,
)
from penstock.simulation.workloads.shape import Workload, slow_noise
from penstock.simulation.workloads.workload import (
    WORKLOADS,
    Bursts,
    Constant,
    Cosine,
    Diurnal,
    FlashCrowd,
    Poisson,
    Pyramid,
    Ramp,
    RandomWalk,
    Sine,
    Spikes,
    Square,
    StepShape,
)

SHAPES = sorted(set(WORKLOADS) - {"trace", "recording"})  # these need a name
RANDOM = ["bursts", "cosine", "diurnal", "poisson", "random_walk"]


def capacity(executors: int) -> float:
    return 10_000.0 * executors


def rates(workload: Workload | str, seconds: int, seed: int = 1) -> list[float]:
    parsed = parse_workload(workload) if isinstance(workload, str) else workload
    return parsed.rates(seconds, seed, capacity)


def test_a_step_changes_at_its_instant() -> None:
    assert rates(StepShape(before_rps=1.0, after_rps=3.0, at_s=2.0), 4) == [1.0, 1.0, 3.0, 3.0]


def test_a_ramp_may_fall_and_then_holds() -> None:
    ramp = Ramp(before_rps=10.0, after_rps=0.0, at_s=1.0, duration_s=2.0)
    assert rates(ramp, 5) == [10.0, 10.0, 5.0, 0.0, 0.0]


def test_a_sine_reaches_mean_top_and_bottom() -> None:
    wave = rates(Sine(mean_rps=32_500.0, amplitude_rps=27_500.0, period_s=10_800.0), 10_800)
    assert wave[0] == 32_500.0
    assert wave[2_700] == pytest.approx(60_000.0)
    assert wave[8_100] == pytest.approx(5_000.0)
    assert wave[1_000] == pytest.approx(27_500.0 * sin(2 * pi * 1_000 / 10_800) + 32_500.0)


def test_a_cosine_has_a_new_value_each_minute_within_its_noise() -> None:
    shape = Cosine(mean_rps=150_000.0, amplitude_rps=100_000.0, noise_rps=10_000.0)
    wave = rates(shape, 7_200)
    for minute in range(120):
        values = set(wave[60 * minute : 60 * minute + 60])
        assert len(values) == 1
        expected = 150_000.0 + 100_000.0 * cos(2 * pi * minute / 60)
        assert abs(values.pop() - expected) <= 10_000.0
    assert wave[0] != wave[3_600]


def test_noise_below_zero_ends_at_zero() -> None:
    wave = rates(Cosine(mean_rps=100.0, amplitude_rps=100.0, noise_rps=80.0), 7_200)
    assert min(wave) == 0.0


def test_a_pyramid_goes_up_and_down_in_held_steps() -> None:
    shape = Pyramid(low_rps=0.0, high_rps=60.0, step_rps=15.0, hold_s=130.0)
    levels = rates(shape, 2_700)[::130]
    assert levels[:12] == [0, 15, 30, 45, 60, 45, 30, 15, 0, 15, 30, 45]
    assert rates(shape, 131)[128:] == [0.0, 0.0, 15.0]


def test_a_pyramid_does_not_pass_its_top_when_steps_do_not_fit() -> None:
    shape = Pyramid(low_rps=10.0, high_rps=30.0, step_rps=15.0, hold_s=1.0)
    assert rates(shape, 6) == [10.0, 25.0, 30.0, 25.0, 10.0, 25.0]


def test_a_square_holds_each_side() -> None:
    shape = rates(Square(low_rps=1.0, high_rps=65.0, hold_s=370.0), 1_110)
    assert shape == [1.0] * 370 + [65.0] * 370 + [1.0] * 370


def test_spikes_come_after_each_full_gap() -> None:
    shape = rates(Spikes(base_rps=1.0, height_rps=9.0, every_s=4.0, width_s=1.0), 9)
    assert shape == [1, 1, 1, 1, 10, 1, 1, 1, 10]


def test_bursts_last_as_long_as_they_should() -> None:
    shape = rates(Bursts(base_rps=100.0), 86_400)
    high = "".join("1" if rate == 150.0 else "0" for rate in shape)
    assert set(shape) == {100.0, 150.0}
    lengths = [len(run) for run in high.split("0") if run]
    assert 50 <= len(lengths) <= 130  # about 86,400 / (900 + 75) = 89
    assert all(30 <= length <= 240 for length in lengths)  # two may touch


def test_a_flash_crowd_is_fourfold_in_a_minute_and_mostly_gone_in_twenty() -> None:
    crowd = rates(FlashCrowd(base_rps=1_000.0, at_s=100.0), 4_000)
    assert crowd[100] == 1_000.0
    assert crowd[130] == pytest.approx(2_500.0)
    assert crowd[160] == pytest.approx(4_000.0)
    assert crowd[160 + 1_200] == pytest.approx(1_000.0 + 3_000.0 / 20)
    assert max(crowd) == crowd[160]


def test_a_random_walk_starts_where_it_should_and_stays_inside() -> None:
    walk = rates(RandomWalk(start_rps=50.0, step_rps=30.0, low_rps=20.0, high_rps=90.0), 86_400)
    assert walk[:60] == [50.0] * 60
    assert 20.0 <= min(walk) < 25.0
    assert 85.0 < max(walk) <= 90.0


def test_a_random_walk_without_room_stands_still() -> None:
    walk = rates(RandomWalk(start_rps=5.0, low_rps=5.0, high_rps=5.0), 300)
    assert walk == [5.0] * 300


def test_a_day_peaks_at_its_hour() -> None:
    day = rates(Diurnal(low_rps=10.0, high_rps=30.0, noise_fraction=0.0), 86_400)
    assert day[72_000] == pytest.approx(30.0)
    assert day[28_800] == pytest.approx(10.0)
    assert day[50_400] == pytest.approx(20.0)


def test_poisson_counts_scatter_like_their_mean() -> None:
    counts = np.array(rates(Poisson(levels_rps=(100.0, 400.0), every_s=6_000.0), 12_000))
    assert np.all(counts == np.round(counts))
    for mean, piece in ((100.0, counts[:6_000]), (400.0, counts[6_000:])):
        assert piece.mean() == pytest.approx(mean, rel=0.01)
        assert piece.var() == pytest.approx(mean, rel=0.1)


def test_poisson_has_a_new_rate_every_ten_minutes() -> None:
    counts = np.array(rates(Poisson(low_rps=20_000.0, high_rps=120_000.0), 6_000))
    means = counts.reshape(10, 600).mean(axis=1)
    assert np.all((means > 19_900) & (means < 120_100))
    assert np.ptp(means) > 20_000


def test_slow_noise_has_unit_variance_and_a_memory_of_minutes() -> None:
    noise = slow_noise(np.arange(500_000.0), np.random.default_rng(3))
    assert noise.mean() == pytest.approx(0.0, abs=0.1)
    assert noise.std() == pytest.approx(1.0, abs=0.1)
    after_time_constant = np.corrcoef(noise[:-300], noise[300:])[0, 1]
    assert after_time_constant == pytest.approx(1 / np.e, abs=0.1)


@pytest.mark.parametrize("name", [*SHAPES, *NAMED])
def test_each_name_works_alone_and_scales_to_executors(name: str) -> None:
    series = rates(name, 7_200)
    assert len(series) == 7_200
    assert all(isfinite(rate) and rate >= 0.0 for rate in series)
    assert max(series) <= 160_000.0 or name in NAMED or name == "diurnal"


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_can_be_measured_in_executors(name: str) -> None:
    series = rates(f"{name}:peak_executors=8", 7_200)
    assert np.percentile(series, 99.9) == pytest.approx(80_000.0)


@pytest.mark.parametrize("name", [*SHAPES, *NAMED])
def test_the_same_seed_gives_the_same_series(name: str) -> None:
    assert rates(name, 3_000, seed=5) == rates(name, 3_000, seed=5)


@pytest.mark.parametrize("name", SHAPES)
def test_another_seed_changes_what_is_random_and_nothing_else(name: str) -> None:
    same = rates(name, 7_200, seed=5) == rates(name, 7_200, seed=6)
    assert same == (name not in RANDOM)


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_says_in_one_line_what_it_is(name: str) -> None:
    first = (WORKLOADS[name].__doc__ or "").splitlines()[0]
    assert first.endswith(".")
    assert 20 < len(first) < 100


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_is_made_for_no_time(name: str) -> None:
    assert rates(f"{name}:peak_executors=8", 0) == []


quiet = st.sampled_from(
    [
        Constant(rate_rps=3.0),
        StepShape(before_rps=1.0, after_rps=2.0, at_s=20.0),
        Sine(mean_rps=10.0, amplitude_rps=10.0, period_s=37.0),
        Square(low_rps=0.0, high_rps=7.0, hold_s=11.0),
        Ramp(before_rps=1.0, after_rps=9.0, duration_s=50.0, peak_executors=3),
    ]
)


@given(quiet, quiet)
def test_a_sum_adds_second_by_second_in_any_order(a: Workload, b: Workload) -> None:
    expected = [x + y for x, y in zip(rates(a, 60), rates(b, 60), strict=True)]
    assert rates(Sum((a, b)), 60) == expected == rates(Sum((b, a)), 60)


@given(quiet, quiet, quiet)
def test_a_product_spreads_over_a_sum(a: Workload, b: Workload, c: Workload) -> None:
    together = rates(Product((a, Sum((b, c)))), 60)
    apart = rates(Sum((Product((a, b)), Product((a, c)))), 60)
    assert together == pytest.approx(apart)


@given(quiet, quiet, st.integers(1, 50), st.integers(0, 80))
def test_a_sequence_is_one_after_the_other(a: Workload, b: Workload, cut: int, total: int) -> None:
    joined = rates(Sequence((Phase(a, float(cut)), Phase(b))), total)
    assert joined == (rates(a, cut) + rates(b, max(0, total - cut)))[:total]


@given(quiet, st.integers(1, 50), st.integers(0, 200))
def test_what_has_an_end_starts_over(a: Workload, length: int, total: int) -> None:
    once = rates(a, length)
    assert rates(Sequence((Phase(a, float(length)),)), total) == (once * 200)[:total]


def test_equal_parts_do_not_share_their_noise() -> None:
    twice = rates("poisson:levels=10k + poisson:levels=10k", 20_000)
    # Independent variances add up to 20 k; shared noise would make them 40 k.
    assert np.var(twice) == pytest.approx(20_000.0, rel=0.05)


def test_durations_add_up_and_the_endless_go_along() -> None:
    assert parse_workload("sine").natural_duration_s() is None
    assert parse_workload("sine for 2h").natural_duration_s() == 7_200.0
    assert parse_workload("sine for 2h then step for 30min").natural_duration_s() == 9_000.0
    assert parse_workload("sine for 2h then step").natural_duration_s() is None
    assert parse_workload("(sine for 2h) + step").natural_duration_s() == 7_200.0
    assert parse_workload("(sine for 2h) * (step for 3h)").natural_duration_s() == 10_800.0
    assert parse_workload("koper-q1").natural_duration_s() == 8_400.0


def test_products_bind_tighter_than_sums_and_sums_than_phases() -> None:
    text = "constant:2 + constant:3 * 4 for 1s then (constant:2 + constant:3) * 4"
    assert rates(text, 3) == [14.0, 20.0, 20.0]


def test_names_take_either_kind_of_dash_and_their_first_value_without_a_key() -> None:
    assert parse_workload("flash-crowd:5k") == FlashCrowd(base_rps=5_000.0)
    assert parse_workload("constant:40k") == Constant(rate_rps=40_000.0)
    assert parse_workload("koper_q1") == parse_workload("koper-q1")


def test_a_part_of_a_named_load_is_cut_from_the_whole() -> None:
    assert rates("koper-q1", 600) == rates("koper-q1", 8_400)[:600]


@pytest.mark.parametrize(
    "text",
    [
        "sine",
        "sine:mean=40k,amplitude=25k",
        "sine:mean=33333.25,period=7s,peak_executors=4",
        "poisson:levels=1k|2k|3.5k",
        "(diurnal + bursts:base=5k) * constant:rate=1.2 for 6h then square",
        "sine + (step for 2h then ramp) * square for 90s",
        "(sine for 2h then step for 1h) for 5h then constant",
        "trace:./a=b/load (2).csv,hours=2,noise=0 + sine",
        "sine + (step + ramp)",
        *NAMED.values(),
    ],
)
def test_a_workload_describes_itself_so_that_it_reads_back(text: str) -> None:
    workload = parse_workload(text)
    assert parse_workload(workload.describe()) == workload


shapes = st.one_of(
    st.builds(Constant, rate_rps=st.floats(0, 1e6)),
    st.builds(
        Sine,
        mean_rps=st.floats(0, 1e6),
        amplitude_rps=st.floats(0, 1e6),
        period_s=st.floats(1, 1e6),
        peak_executors=st.none() | st.integers(1, 100),
    ),
    st.builds(Poisson, levels_rps=st.lists(st.floats(0, 1e6), max_size=3).map(tuple)),
)
workloads = st.recursive(
    shapes,
    lambda parts: st.one_of(
        st.builds(lambda a, b: Sum((a, b)), parts, parts),
        st.builds(lambda a, b: Product((a, b)), parts, parts),
        st.builds(
            lambda a, b, s: Sequence((Phase(a, s), Phase(b))), parts, parts, st.floats(1, 1e6)
        ),
    ),
    max_leaves=6,
)


@given(workloads)
def test_any_workload_describes_itself_so_that_it_reads_back(workload: Workload) -> None:
    assert parse_workload(workload.describe()) == workload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sinus", "unknown workload 'sinus': did you mean 'sine'? Known: borkowski-lab,"),
        ("pulsr", "unknown workload 'pulsr': did you mean 'pulsar'?"),
        ("daedalus-trafic", "unknown workload 'daedalus-trafic': did you mean 'daedalus-traffic'?"),
        ("koper-q1:noise=0", "koper-q1 takes no options: it stands for 'cosine:mean=150k"),
        ("recording:ysb", "recording: name must be one of daedalus-ysb, daedalus-traffic, not"),
        ("levels:levels=", "levels: levels must be of length at least 1, not ''"),
        ("sine:perod=3h", "unknown option 'perod' in sine: did you mean 'period'?"),
        ("sine:period=0", "sine: period must be greater than 0, not '0'"),
        ("constant:rate=-5", "constant: rate must be at least 0, not '-5'"),
        ("sine * -2", "constant: rate must be at least 0, not '-2'"),
        ("", "workload '': expected a workload, but it ends"),
        ("sine +", "workload 'sine +': expected a workload, but it ends"),
        ("+ sine", "workload '+ sine': expected a workload, but there is '+'"),
        ("(sine", "workload '(sine': expected ')', but it ends"),
        ("sine)", "workload 'sine)': expected '+', '*', 'for', 'then' or the end"),
        ("sine for", "workload 'sine for': expected a duration such as 2h, but it ends"),
        ("sine for ever", "a duration must be a number"),
        ("sine for 0s", "'sine for 0': a duration must be between 1 s and 366 d, not 0 s"),
        ("trace", "trace: file must be given"),
        ("trace:x.csv,scale=2,max=5", "give either scale or max, not both"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_workload(text)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sine:mean=1k,amplitude=2k,period=4s",
            "sine:mean=1k,amplitude=2k,period=4s: rates must be finite and not negative, "
            "not -1000 records/s at second 3",
        ),
        ("cosine:mean=1k,amplitude=2k", "not -175.571 records/s at second 1260"),
        ("pyramid:low=5,high=3", "high must be at least low (5 records/s), not 3"),
        ("bursts:shortest=90s,longest=30s", "longest must be at least shortest (90 s), not 30 s"),
        ("random_walk:start=1", "start must be between low (10000) and high (140000 records/s)"),
        ("constant:0,peak_executors=3", "cannot be scaled to a peak: its 99.9th percentile is 0"),
        ("sine then step", "'sine' never ends, so nothing can follow it"),
        ("constant:1e200 * constant:1e200", "not inf records/s at second 0"),
        ("poisson:levels=1e18", "rates must be at most 1e+15 records/s, not 1e+18"),
    ],
)
def test_a_series_that_cannot_be_is_refused(text: str, message: str) -> None:
    workload = parse_workload(text)
    with pytest.raises(ConfigError) as refusal:
        rates(workload, 3_600)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_negative_rate_given_in_code_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="not -5 records/s at second 0"):
        rates(Constant(rate_rps=-5.0), 10)
    with pytest.raises(ConfigError, match="not nan records/s at second 0"):
        rates(Constant(rate_rps=float("nan")), 10)
