"""Sweeps on a real cluster: the same numbers to the last bit, also when executors die."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import astuple

from penstock.core.errors import ConfigError
from penstock.lab.experiments.on_spark import (
    exists,
    frame,
    localized,
    on_spark,
    packed,
    read_traces,
)
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.sweep import CellRunner, OnRow, ResumeFile, sweep, write_table
from penstock.lab.experiments.tournament import Cell, Row, cells
from penstock.settings.goal import Goal
from penstock.testbed import Testbed
from penstock.testbed.clusters.cluster import ExecutorProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

HOURS = 2.0


def grid(
    *policies: str, loads: Sequence[str] = ("sine",), seeds: Sequence[int] = (1, 2)
) -> list[Cell]:
    bounds = {"min_executors": 1, "max_executors": 16}
    return cells(policies, loads, ["micro-batch"], seeds, goal=Goal(), bounds=bounds,
                 duration_s=HOURS * 3600.0)  # fmt: skip


def here(work: Any, some: Sequence[Cell], arrived: OnRow) -> object:
    return run_in_processes(work, some, 1, on_result=arrived)


@pytest.fixture
def cluster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> CellRunner:
    """With our own Python on the executors; that of the system may lack NumPy and msgspec."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    return on_spark(spark)


def test_a_cluster_gives_the_rows_of_this_machine_also_from_a_trace(
    cluster: CellRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.csv").write_text("0,5\n3600,9\n7200,4\n10800,6\n")
    every = grid("hpa", "ds2", loads=["sine", "trace:load.csv,hours=3 + constant:2k"])
    assert sweep(every, cluster) == sweep(every, here)


def test_tasks_of_a_killed_executor_are_done_again_and_no_number_changes(
    bed: Testbed, spark: SparkSession, cluster: CellRunner, tmp_path: Path
) -> None:
    every = grid("thresholds", seeds=range(1, 7))  # it looks twice a second, so each takes long
    killed: list[ExecutorProcess] = []

    def kill_one(done: int) -> None:
        if done == 2 and not killed:
            killed.append(bed.kill_executor())

    with ResumeFile(tmp_path / "done.jsonl", Row) as kept:
        rows = sweep(every, cluster, kept, kill_one)
    assert len(killed) == 1
    assert failed_tasks(spark) >= 1
    assert rows == sweep(every, here)
    lines = (tmp_path / "done.jsonl").read_text().splitlines()
    assert len(lines) == 1 + len(every)  # each run is kept once


def failed_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def test_bad_input_is_told_and_not_tried_again(spark: SparkSession, cluster: CellRunner) -> None:
    before = failed_tasks(spark)
    short = cells(["hpa"], ["sine"], ["micro-batch"], [1], goal=Goal(warmup_s=900.0),
                  bounds={}, duration_s=600.0)  # fmt: skip
    with pytest.raises(ConfigError, match="is not longer than the warm-up"):
        sweep(short, cluster)
    assert failed_tasks(spark) == before


def test_rows_are_a_frame_and_a_parquet_file_that_spark_reads_to_the_last_bit(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        Row("static:ä", "sine", "micro-batch", 2**40, 0.1, 1 / 3, 1e-300, 5e-324, 1.7e308, 0.0,
            0, 3, 12.5, None if seed % 3 else 0.25)
        for seed in range(40)
    ]  # fmt: skip
    path = tmp_path / "results.parquet"
    write_table(path, Row, rows)
    read = spark.read.parquet(str(path))
    assert [tuple(each) for each in read.collect()] == [astuple(row) for row in rows]
    whole = frame(spark, rows)
    assert whole.schema == read.schema
    assert [tuple(each) for each in whole.collect()] == [astuple(row) for row in rows]
    assert exists(spark, path.as_uri())
    assert not exists(spark, (tmp_path / "nothing").as_uri())
    with pytest.raises(ConfigError, match="Spark cannot look at moon://"):
        exists(spark, "moon://crater/results")


def test_a_trace_that_cannot_be_renamed_in_its_load_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("0,1\n60,2\n")
    (cell,) = grid("hpa", loads=["trace:hours=1,file=a.csv + trace: a.csv"], seeds=[1])
    with pytest.raises(ConfigError, match="cannot be sent to a cluster"):
        localized(cell, read_traces([cell]))


def test_the_code_that_travels_runs_from_its_archive_alone(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import penstock.lab.experiments.on_spark as module\n"
        "from penstock.lab.experiments.tournament import play\n"
        "from penstock.simulation.workloads.expressions import parse_workload\n"
        "print(module.__file__, parse_workload('recording:daedalus-ysb').rates(1, 1, float))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(str(archive))
    assert ran.stdout.endswith(" [46.0]\n")  # the recorded loads travel along


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock", "compare", "--policy", "hpa,ds2", "--seeds", "1..2"]
    argv += ["--duration", "30min", "--warmup", "5min", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_command_gives_the_same_output_on_spark_and_shares_its_file(tmp_path: Path) -> None:
    kept, table = tmp_path / "done.jsonl", tmp_path / "results.parquet"
    there = compare("--json", "--on", "spark", "--master", "local[2]", "--resume", str(kept),
                    "--out", str(table))  # fmt: skip
    assert there.returncode == 0, there.stderr
    assert all(line.startswith("penstock: comparing") for line in there.stderr.splitlines())
    assert compare("--json").stdout == there.stdout
    written = kept.read_bytes()
    assert written.count(b"\n") == 1 + 4 + 2  # the header, the runs, and two oracles
    assert compare("--json", "--resume", str(kept)).stdout == there.stdout
    assert kept.read_bytes() == written
    assert table.read_bytes()[:4] == b"PAR1"
    assert len(json.loads(there.stdout)) == 4


def test_a_master_that_cannot_be_is_one_sentence() -> None:
    refused = compare("--on", "spark", "--master", "moon://crater")
    assert refused.returncode == 2
    assert "cannot start on Spark at moon://crater" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
