"""What a run does with a recorded load unasked is said in sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.simulation.workloads.expressions import notes, parse_workload


def capacity(executors: int) -> float:
    return 10_000.0 * executors


def told(text: str) -> list[str]:
    return notes(parse_workload(text), capacity)


@pytest.fixture
def load(tmp_path: Path) -> str:
    """Rows of five minutes from 0 to 11 h; those of 10 minutes before 4 h are missing."""
    rows = [f"{at_s},{1_000 + at_s / 36:.0f}" for at_s in range(0, 39_601, 300)]
    kept = [row for row in rows if not 10_800 < int(row.split(",")[0]) < 14_520]
    path = tmp_path / "load.csv"
    path.write_text("seconds,rate\n" + "\n".join(kept) + "\n")
    return str(path)


SCALED = (
    "load.csv: peak 2.1 k/s scaled by about 57.1 to 120.0 k/s, "
    "which 12 executors carry (scale=1 keeps the rates)"
)
GAP = "load.csv: a gap of 1 h 05 min (3 h 00 min after the first row), filled with straight lines"


def test_a_trace_that_is_scaled_to_the_job_and_bridges_a_gap_says_both(load: str) -> None:
    assert told(f"trace:{load}") == [SCALED, GAP]


@pytest.mark.parametrize("option", ["scale=1", "max=50k", "peak_executors=4"])
def test_a_scale_that_was_asked_for_needs_no_note(load: str, option: str) -> None:
    assert told(f"trace:{load},{option}") == [GAP]


def test_only_the_piece_that_is_used_counts(load: str) -> None:
    assert told(f"trace:{load},scale=1,hours=2") == []
    assert told(f"trace:{load},scale=1,start=5h,hours=0.01") == []


def test_traces_are_found_in_every_expression_and_named_once(load: str) -> None:
    text = f"(constant:rate=5 + trace:{load}) * 2 for 1h then trace:{load} for 1h then sine"
    assert told(text) == [SCALED, GAP]
    assert told("diurnal + sine * 2") == []


def test_several_gaps_are_one_note(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0,5\n10,5\n20,5\n60,5\n70,5\n170,5\n180,5\n190,5\n")
    assert told(f"trace:{path},scale=1") == [
        "a.csv: 2 gaps, the longest of 100 s (70 s after the first row), filled with straight lines"
    ]
