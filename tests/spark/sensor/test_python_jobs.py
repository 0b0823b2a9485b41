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
    from pyspark.sql import SparkSession

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


def waited_s(processes: Iterable[int]) -> float:
    """How long Python workers and the threads of tasks were ready to run and had no core.

    Spark measures Python by the clock, so this time counts too. It is zero where each slot has a
    core of its own, as it should, but not where tests share two cores.
    """
    nanoseconds = 0
    for process in processes:
        with suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                if (thread / "comm").read_text().startswith(("python", "Executor task")):
                    nanoseconds += int((thread / "schedstat").read_text().split()[1])
    return nanoseconds / 1e9


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
        readings(sensor, lambda seen: seen.batches)
        tree = executor_tree(spark)
        began_s, used_before_s, waited_before_s = now_s(), used_s(tree), waited_s(tree)
        taken = readings(sensor, lambda seen: seen.at_s - began_s > 40.0)
        tree = executor_tree(spark)
        seconds = now_s() - began_s
        used = (used_s(tree) - used_before_s) / seconds
        waited = (waited_s(tree) - waited_before_s) / seconds
    measured = fmean(each.cpu_fraction or 0.0 for seen in taken for each in seen.executors)
    print(f"cpu_fraction {measured:.3f}, used {used:.3f}, waited for a core {waited:.3f}")
    assert len(tree) > 1
    assert used > 0.1
    # Within 20 % of what was used; what waited for a core may count as used or not.
    assert 0.8 * used <= measured <= 1.2 * (used + waited)


def test_memory_is_what_is_in_use_after_a_collection(spark: SparkSession, tmp_path: Path) -> None:
    """The executor keeps 80 blocks of 1 MiB of its 512 MiB heap, and then no more."""
    blocks = spark.sparkContext.parallelize(range(80), 80).map(lambda _: os.urandom(1 << 20))
    blocks.persist(StorageLevel.MEMORY_ONLY).count()
    collect_garbage = spark.range(1).selectExpr("reflect('java.lang.System', 'gc')").collect
    frame = rate(spark, 10, partitions=1)
    frame = frame.mapInPandas(burn(0.8), frame.schema)

    def has_collected(seen: Snapshot) -> float:
        collect_garbage()  # each report should be free of garbage
        return memory(seen)

    with running(frame, tmp_path), sensing(spark) as sensor:
        began_s = now_s()
        # Executors report every 10 s, and only while a task runs.
        high = readings(sensor, lambda seen: has_collected(seen) and seen.at_s - began_s > 30.0)[-1]
        blocks.unpersist(blocking=True)
        low = readings(sensor, lambda seen: has_collected(seen) < memory(high) - 0.1)[-1]
    print(f"memory_fraction {memory(high):.3f}, then {memory(low):.3f}")
    assert memory(high) > 80 / 512
    assert memory(low) > 0.0


def memory(seen: Snapshot) -> float:
    return sum(each.memory_fraction or 0.0 for each in seen.executors)
