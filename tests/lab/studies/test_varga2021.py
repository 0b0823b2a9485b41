"""What state costs (Varga et al.): the lines, the claims, and a small run on real Spark."""

from __future__ import annotations

import pytest

from penstock.lab.studies.skeleton import Bench
from penstock.lab.studies.varga2021 import (
    claims,
    least_disturbed,
    over_fleet,
    over_size,
    study,
)
from penstock.lab.studies.varga_job import PARTITIONS, StateSample

MB = 1e6


def samples(snapshot_s_per_mb: float, executor_factor: float = 0.0) -> list[StateSample]:
    """Times of all stores: 0.8 s and so much per megabyte, more with each executor."""
    return [
        StateSample(
            what, size * MB, executors, (0.8 + rate * size) * (1.0 + executor_factor * executors)
        )
        for what, rate in (("snapshot", snapshot_s_per_mb), ("load", 0.008))
        for size in (16, 64, 128)
        for executors in (1, 2, 4)
    ]


def judged(measured: list[StateSample]) -> dict[str, bool | None]:
    by_size = {what: over_size(measured, what) for what in ("snapshot", "load")}
    by_fleet = {what: over_fleet(measured, what, line) for what, line in by_size.items()}
    return {claim.claim: claim.holds for claim in claims(measured, by_size, by_fleet)}


def test_the_line_is_that_of_one_store() -> None:
    line = over_size(samples(0.016), "snapshot")
    assert line.slope == pytest.approx(0.016 / PARTITIONS / MB)
    assert line.intercept == pytest.approx(0.8 / PARTITIONS)
    assert line.r_squared == pytest.approx(1.0)


def test_all_claims_hold_where_size_alone_counts() -> None:
    untested = dict.fromkeys(("V4", "V5", "V6", "V7"))
    assert judged(samples(0.016)) == {"V1": True, "V2": True, "V3": True, **untested}


def test_a_time_that_does_not_grow_with_size_is_not_linear_in_it() -> None:
    assert not judged(samples(0.0))["V1"]


def test_stores_that_are_slower_beside_others_depend_on_the_parallelism() -> None:
    assert not judged(samples(0.016, executor_factor=0.5))["V3"]


def test_of_repeats_the_quickest_counts() -> None:
    twice = [
        StateSample("load", 1.0, 1, 0.5),
        StateSample("load", 1.0, 2, 0.7),
        StateSample("load", 1.0, 1, 0.3),
    ]
    assert [(one.executors, one.took_s) for one in least_disturbed(twice)] == [(1, 0.3), (2, 0.7)]


@pytest.mark.slow
def test_state_is_saved_and_loaded_on_real_spark() -> None:
    heard: list[str] = []
    plan = study(sizes_bytes=(4 * MB, 16 * MB), fleets=(1, 2), repeats=1)
    found = plan.reproduce(Bench(say=heard.append))
    assert [claim.claim for claim in found.claims] == [f"V{i}" for i in range(1, 8)]
    assert len(found.tables[0].entries) == 4
    for entry in found.tables[0].entries:
        snapshot_ms, load_ms = entry.ours["snapshot"], entry.ours["load"]
        assert snapshot_ms is not None
        assert load_ms is not None
        assert snapshot_ms > 0.0
        assert load_ms >= 0.0
    assert any("load of 16 MB" in line for line in heard)
