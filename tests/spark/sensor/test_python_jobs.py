"""What the sensor sees of a job that computes in Python, against what its processes used."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import StorageLevel

from penstock.core.model import Snapshot
from tests.spark.sensor.sensing import now_s, readings, sensing
from tests.spark.sensor.test_sensor import rate, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EXECUTORS = 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def executor_tree(spark: SparkSession) -> set[int]:
    """The session's executor and all processes that it started, Python workers included."""
    # The name of the application alone may be that of another test's, on another cluster.
    application = spark.sparkContext.applicationId.encode()
    port = spark.sparkContext.getConf().get("spark.driver.port", "?").encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if application in command and any(each.endswith(b":" + port) for each in command):
                    found.add(int(entry.name))
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def used_s(processes: Iterable[int]) -> float:
    """Processor time of these processes and of their children that have ended."""
    ticks = 0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def prefer(processes: Iterable[int]) -> None:
    """Let them run before others: Spark measures Python by the clock, not by its processor time."""
    for process in processes:
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), -10)


def burn(seconds: float) -> Any:
    def compute(frames: Iterator[Any]) -> Iterator[Any]:
        end_s = time.process_time() + seconds
        yield from frames
        while time.process_time() < end_s:
            sum(range(1000))

    return compute


def test_cpu_counts_python_workers(spark: SparkSession, tmp_path: Path) -> None:
    """Two tasks of 0.3 s in Python per second, on one core."""
    frame = rate(spark, 100, partitions=2)
    frame = frame.mapInPandas(burn(0.3), frame.schema)
    with running(frame, tmp_path) as query, sensing(spark) as sensor:
        readings(sensor, lambda _: (query.lastProgress or {"batchId": 0})["batchId"] >= 12)
        tree = executor_tree(spark)
        prefer(tree)
        readings(sensor, lambda seen: seen.batches)
        began_s, used_before_s = now_s(), used_s(executor_tree(spark))
        taken = readings(sensor, lambda seen: seen.at_s - began_s > 40.0)
        ended_s, used_after_s = now_s(), used_s(executor_tree(spark))
    used = (used_after_s - used_before_s) / (ended_s - began_s)
    measured = fmean(each.cpu_fraction or 0.0 for seen in taken for each in seen.executors)
    busy = fmean(each.busy_fraction or 0.0 for seen in taken for each in seen.executors)
    print(f"cpu_fraction {measured:.3f}, processes {used:.3f}, busy_fraction {busy:.3f}")
    assert len(tree) > 1
    assert used > 0.3
    assert measured == pytest.approx(used, rel=0.2)


def test_memory_falls_after_a_collection(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch holds 90 MB for a while, later none. Heartbeats report every 10 s."""
    holds = [True]

    def process(frame: DataFrame, _: int) -> None:
        # Texts that differ: Spark would keep equal ones once.
        many = spark.range(90_000).selectExpr("repeat(sha2(string(id), 512), 8) AS text")
        if holds[0]:
            many.persist(StorageLevel.MEMORY_ONLY).count()
        spark.range(1).selectExpr("reflect('java.lang.System', 'gc')").collect()
        frame.mapInPandas(burn(2.0), frame.schema).write.format("noop").mode("append").save()
        many.unpersist(blocking=True)

    writer = rate(spark, 10, partitions=1).writeStream.trigger(processingTime="1 second")
    writer = writer.option("checkpointLocation", str(tmp_path / "holds")).foreachBatch(process)
    query = writer.start()
    try:
        with sensing(spark) as sensor:
            high = readings(sensor, lambda seen: min(memory(seen), default=0.0) > 0.3)
            holds[0] = False
            low = readings(sensor, lambda seen: max(memory(seen)) < memory(high[-1])[0] - 0.1)
    finally:
        query.stop()
    print(f"memory_fraction {memory(high[-1])[0]:.3f}, then {memory(low[-1])[0]:.3f}")


def memory(seen: Snapshot) -> list[float]:
    return [each.memory_fraction or 0.0 for each in seen.executors]
