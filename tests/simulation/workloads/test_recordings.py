"""The loads of studies that are shipped: worked numbers of what was recorded."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.simulation.workloads.expressions import parse_workload
from penstock.simulation.workloads.recordings import Laboratory, RecordedRates


def capacity(executors: int) -> float:
    return 10_000.0 * executors


def whole(name: str) -> list[float]:
    workload = parse_workload(name)
    return workload.rates(int(workload.natural_duration_s() or 0), 1, capacity)


@pytest.mark.parametrize(
    ("name", "peak_rps", "mean_rps"),
    # The largest and the mean of the 21,600 rows of the published files.
    [("daedalus-ysb", 549_999, 211_343), ("daedalus-traffic", 99_989, 30_014)],
)
def test_means_of_30_s_keep_the_peak_and_the_mean_of_the_recording(
    name: str, peak_rps: float, mean_rps: float
) -> None:
    rates = parse_workload(f"recording:{name}").rates(21_600, 1, capacity)
    assert max(rates) == pytest.approx(peak_rps, rel=0.005)
    assert np.mean(rates) == pytest.approx(mean_rps, rel=1e-4)


def test_a_recording_takes_lines_between_the_middles_of_its_spans_and_starts_over() -> None:
    load = RecordedRates(name="daedalus-ysb")
    rates = load.rates(21_700, 1, capacity)
    # Means of 46, then 160 records/s: middles at 15 s and 45 s, a line between them.
    assert rates[0] == rates[14] == 46.0
    assert rates[29] == pytest.approx(46.0 + (160.0 - 46.0) * 14.5 / 30.0)
    assert rates[21_600:] == rates[:100]
    assert load.natural_duration_s() == 21_600.0


@pytest.mark.parametrize(
    ("name", "hours", "mean_rps"),
    # Scaled to 120,000/s: 211,343 of 549,853 at the 99.9th percentile; 37 of 63.4; 1 of 1.8.
    [
        ("daedalus-ysb", 6.0, 46_121),
        ("daedalus-traffic", 6.0, 36_131),
        ("borkowski-lab", 0.75, 69_978),
        ("pulsar", 1.0, 66_667),
    ],
)
def test_the_peak_of_each_load_needs_twelve_executors(
    name: str, hours: float, mean_rps: float
) -> None:
    rates = whole(name)
    assert len(rates) == 3600 * hours
    assert np.percentile(rates, 99.9) == pytest.approx(120_000.0)
    assert np.mean(rates) == pytest.approx(mean_rps, abs=1.0)


def test_a_part_is_cut_from_the_whole_and_no_seed_changes_it() -> None:
    for name in ("daedalus-ysb", "borkowski-lab", "pulsar"):
        assert parse_workload(name).rates(600, 7, capacity) == whole(name)[:600]


def test_the_laboratory_drifts_and_jumps_between_0_and_65_images() -> None:
    rates = np.array(Laboratory().rates(2_700, 1, capacity))
    assert rates.min() == pytest.approx(2.72, abs=0.01)
    assert rates.max() == pytest.approx(64.2, abs=0.1)
    assert rates.mean() == pytest.approx(37.0, abs=0.1)
    assert np.abs(np.diff(rates)).max() > 20.0  # noise alone, 1.5 on each of two, makes about 8
    assert Laboratory().rates(2_710, 5, capacity)[2_700:] == rates[:10].tolist()


def test_pulsar_holds_six_levels_for_ten_minutes_each() -> None:
    # 0.4, 0.8, 1.4, 1.8, 1.1, 0.5 of the mean; the highest is 120,000/s.
    assert whole("pulsar")[::600] == pytest.approx(
        [26_666.7, 53_333.3, 93_333.3, 120_000.0, 73_333.3, 33_333.3], abs=0.1
    )
    assert len(set(whole("pulsar"))) == 6
