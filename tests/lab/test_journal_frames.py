"""Journals as a DataFrame: a row per turn, damaged lines left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lab.journal_frames import COLUMNS, read_journals
from penstock.observe.recording import read_journal
from tests.cluster import bed, spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bed", "spark"]
# PySpark leaves the sockets of collected results to the collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RECORDED = Path(__file__).parents[1] / "recorded"


def test_all_turns_of_all_journals_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    names = ("sessions-wave.jsonl", "udf-busy.jsonl")
    for name in names:
        (tmp_path / name).write_bytes((RECORDED / name).read_bytes())
    whole = (tmp_path / names[0]).read_bytes()
    (tmp_path / names[0]).write_bytes(whole + b'{"at_s": 99, "snap')  # cut off by a crash
    frame = read_journals(spark, str(tmp_path))
    assert frame.columns == ["journal", "policy", *COLUMNS]
    counts = frame.groupBy("journal").count().collect()
    found = {Path(str(row["journal"])).name: row[1] for row in counts}
    steps = {name: list(read_journal(RECORDED / name).steps) for name in names}
    assert found == {name: len(each) for name, each in steps.items()}
    first = frame.where("journal like '%udf-busy%'").orderBy("at_s").collect()[-1]
    last = steps["udf-busy.jsonl"][-1]
    assert first["at_s"] == last.at_s
    assert first["decided"] == last.decision.target_executors
    assert first["reason"] == last.decision.reasons[0].text
    assert first["policy"].startswith("hpa")
