"""Some minutes of chaos on a real cluster, and the table of faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.page import read_results

#: No fault begins later than this; what has begun is played to its end.
MINUTES = 2.0
#: Kinds that were seen to hold before, on a machine that does other things.
KINDS = "executor_lost_while_leaving"
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_job_survives_minutes_of_chaos(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    options = ["--minutes", str(MINUTES), "--seed", "7", "--parts", KINDS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *options, "--results", str(results)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert read_results(results)


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
