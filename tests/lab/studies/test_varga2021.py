"""What state costs (Varga et al.): the lines, the claims, and a small run on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lab.experiments.sweep import ResumeFile
from penstock.lab.studies.skeleton import Bench, KeptResult
from penstock.lab.studies.varga2021 import (
    PARTS,
    WHATS,
    claims,
    findings,
    over_size,
    study,
)
from penstock.lab.studies.varga_job import StatePart, StateSample, longest_s

MB = 1e6


def samples(s_per_mb: float, store_factor: float = 0.0) -> list[StateSample]:
    """Each store takes 0.1 s and its part of the bytes, downtimes 3 s whatever the size."""
    found = []
    for size, stores, changelog in ((p.state_bytes, p.stores, p.changelog) for p in PARTS):
        for repeat in range(3):
            alone = 1.0 if stores > 1 else 0.5
            took_s = 0.1 + s_per_mb * size / MB / stores * alone * (1.0 + store_factor * stores)
            down_s = 3.0 + 0.1 * repeat
            for what in WHATS:
                mean_s = took_s if what in WHATS[:2] else down_s
                longest = mean_s * (1.01 if what in WHATS[:2] else 1.0)
                found.append(StateSample(what, size, stores, changelog, mean_s, longest))
    return found


def judged(measured: list[StateSample]) -> dict[str, bool | None]:
    return {claim.claim: claim.holds for claim in claims(measured)}


def test_the_line_is_that_of_the_longest_store() -> None:
    line = over_size(samples(0.016), "snapshot")
    assert line.slope == pytest.approx(1.01 * 0.016 / 8 / MB)
    assert line.r_squared == pytest.approx(1.0)


def test_claims_hold_where_size_alone_counts() -> None:
    found = judged(samples(0.016))
    assert (found["V1"], found["V2"], found["V4"]) == (True, True, True)
    assert found["V7"] is None


def test_a_time_that_does_not_grow_with_size_is_not_linear_in_it() -> None:
    assert not judged(samples(0.0))["V1"]


def test_stores_that_are_slower_beside_others_depend_on_the_parallelism() -> None:
    assert not judged(samples(0.016, store_factor=0.5))["V3"]


def test_parts_cover_the_sizes_both_ways_of_saving_and_one_to_eight_stores() -> None:
    assert {part.state_bytes for part in PARTS} >= {0.1e9, 4e9}
    assert {part.stores for part in PARTS} == {1, 2, 4, 8}
    assert {part.changelog for part in PARTS} == {False, True}
    assert {part.repeats for part in PARTS} == {5}


def test_the_study_shows_intervals_of_r_squared_and_both_ways_of_saving() -> None:
    found = findings(samples(0.016))
    assert {"R^2", "R^2, 95 % from", "R^2, 95 % to"} <= found.tables[1].entries[0].ours.keys()
    assert found.tables[0].entries[0].label == "100 MB, 8 stores, whole snapshots"
    assert len(found.figures) == 8


@pytest.mark.parametrize(("text", "found"), [
    ("total (min, med, max)\n2.5 s (0.9 s, 1.2 s, 1.4 s (stage 3.0: task 7))", 1.4),
    ("total (min, med, max)\n98 ms (7 ms, 9 ms, 31 ms (stage 3.0: task 7))", 0.031),
    ("98 ms", None),
])  # fmt: skip
def test_the_longest_time_of_a_task_is_read_from_what_spark_writes(
    text: str, found: float | None
) -> None:
    assert longest_s(text) == found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_state_is_saved_and_loaded_on_real_spark_and_not_measured_twice(tmp_path: Path) -> None:
    parts = [StatePart(size * MB, 2, changelog=False, repeats=2) for size in (4, 16)]
    with ResumeFile(tmp_path / "done.jsonl", KeptResult) as kept:
        found = study(parts).reproduce(Bench(kept=kept))
        assert study(parts).reproduce(Bench(kept=kept)) == found
    assert [claim.claim for claim in found.claims] == [f"V{i}" for i in range(1, 8)]
    assert len(found.tables[0].entries) == 2
    for entry in found.tables[0].entries:
        assert all(value is not None and value >= 0.0 for value in entry.ours.values())
        assert (entry.ours["snapshot"] or 0.0) > 0.0
        assert (entry.ours["restart"] or 0.0) > (entry.ours["load"] or 0.0)
