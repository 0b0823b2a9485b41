"""Some minutes of chaos on a real cluster, and the table of faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, GROUPS
from tests.chaos.page import read_results
from tests.chaos.play import line_of, next_fault

#: Kinds that held each time so far; together they take about five minutes.
KINDS = (
    "executor_killed", "executor_lost_while_leaving", "node_lost", "target_zero",
    "broker_stopped", "driver_killed_growing", "store_fails", "journal_deleted",
)  # fmt: skip
MINUTES = 20.0  #: No fault begins later than this, on however slow a machine.
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_survives_minutes_of_chaos(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    options = ["--minutes", str(MINUTES), "--rounds", "1", "--seed", "7"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *options, "--parts", ",".join(KINDS),
         "--results", str(results)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert sorted(each["fault"] for each in read_results(results)) == sorted(KINDS)


def test_a_part_that_is_none_is_refused_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--parts", "moon"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("chaos: there is no part 'moon': ")
    assert len(done.stderr.splitlines()) == 1


def test_each_kind_of_fault_says_what_it_does_and_what_is_expected() -> None:
    assert len(FAULTS) >= 25
    assert all(each.how and each.expected for each in FAULTS.values())
    groups = [each.__name__.rpartition(".")[2] for each in GROUPS]
    assert {each.group for each in FAULTS.values()} == set(groups)


def test_a_later_run_goes_on_with_the_kinds_that_have_the_fewest() -> None:
    names, done = sorted(FAULTS), list[str]()
    while (name := next_fault(names, 3, done, rounds=2)) is not None:
        done.append(name)
    assert sorted(done[: len(names)]) == sorted(done[len(names) :]) == names
    assert done[: len(names)] != done[len(names) :]
    assert next_fault(names, 4, [], rounds=1) != done[0] or next_fault(names, 5, [], 1) != done[0]


def test_the_line_of_a_fault_says_its_times_and_below_it_what_broke() -> None:
    result = {
        "fault": "node_lost", "seconds": 41, "fault_s": 3.2, "settled_s": 12.1, "rescales": 1,
        "kills": 2, "records": 900, "broke": ["settles: the fleet did not settle at 3"],
    }  # fmt: skip
    first, *below = line_of(result).splitlines()
    assert first.startswith("BROKE node_lost ")
    assert "  41 s, fault 3 s, settled after 12 s, 1 rescales, 2 kills, 900 records" in first
    assert below == ["      settles: the fleet did not settle at 3"]
    assert line_of(result | {"broke": []}).startswith("held  node_lost")
