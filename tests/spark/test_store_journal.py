"""The journal in a store that outlives the driver: real Hadoop file systems, real Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import penstock
from penstock.core.journal import JournalHeader, read_header, read_steps
from penstock.core.model import ExecutorSample, Step
from penstock.spark import store_journal
from penstock.spark.internals import Driver
from penstock.spark.store_journal import StoreFolder, StoreJournal, parts_of
from penstock.testbed import wait_until
from penstock.testbed.servers import free_ports
from tests.observe.report.example_steps import turn
from tests.spark.hdfs import Hdfs, hdfs
from tests.spark.sensor.sensing import now_s
from tests.spark.test_attach_faults import Hold, turns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EXECUTORS = 1
HEADER = JournalHeader.of({"policy": "hpa"})


@pytest.fixture(scope="module")
def cluster_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_journal, "COPY_EVERY_S", 0.2)


def journal(spark: SparkSession, uri: str, name: str = "orders") -> StoreJournal:
    return StoreJournal(uri, lambda: StoreFolder(Driver(spark), uri, name), HEADER)


def parts(place: Path, name: str = "orders") -> list[Path]:
    """The parts in a folder; Hadoop keeps a hidden file with the checksum of each."""
    return sorted((place / name).glob("*.jsonl"))


def recalled(spark: SparkSession, uri: str, name: str = "orders") -> list[Step]:
    reader = journal(spark, uri, name)
    steps = reader.recall()
    reader.close()
    return steps


def with_executors(at_s: float, samples: tuple[ExecutorSample, ...]) -> Step:
    step = turn(at_s, 10, arrival_rps=1000.0)
    assert step.snapshot is not None
    return replace(step, snapshot=replace(step.snapshot, executors=samples))


@pytest.mark.usefixtures("quick")
def test_steps_are_copied_and_recalled_and_each_part_is_a_journal(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_journal, "PART_BYTES", 5000)
    uri = tmp_path.as_uri()
    kept = journal(spark, uri)
    assert kept.recall() == []
    for number in range(100):
        kept.write(turn(1000.0 + number))
    wait_until(lambda: len(parts(tmp_path)) >= 3, 30.0, "no parts")
    kept.write(turn(2000.0))
    kept.close()
    assert [step.at_s for step in recalled(spark, uri)] == [*map(float, range(1000, 1100)), 2000.0]
    found = parts(tmp_path)
    assert len({part.name[:20] for part in found}) == len(found)  # no earlier copy is left
    assert all(read_header(part).run == HEADER.run and list(read_steps(part)) for part in found)
    assert recalled(spark, uri, "payments") == []  # another application in the same folder


@pytest.mark.usefixtures("quick")
def test_other_settings_begin_another_part_and_old_parts_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_journal, "PARTS_KEPT", 3)
    kept = journal(spark, tmp_path.as_uri())
    for number in range(8):
        kept.begin(JournalHeader.of({"number": str(number)}))
        kept.write(turn(1000.0 + number))
    kept.close()
    found = list(parts_of(part.name for part in parts(tmp_path)))
    assert 3 <= len(found) <= 4
    newest = tmp_path / "orders" / found[0][0]
    assert read_header(newest).run == {"number": "7"}


@pytest.mark.usefixtures("quick")
def test_a_restarted_application_continues_from_the_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = f"file://{tmp_path}/jobs"
    with penstock.attach(spark, Hold(), max=2, journal=uri) as handle:
        turns(handle, 5)
    name = Driver(spark).conf("spark.app.name").replace(" ", "_")
    first = [step for part in parts(tmp_path / "jobs", name) for step in read_steps(part)]
    with penstock.attach(spark, Hold(), max=2, journal=uri) as handle:
        assert handle._loop._controller.knowledge.last_step == first[-1]
        turns(handle, 2)
    after = [step for part in parts(tmp_path / "jobs", name) for step in read_steps(part)]
    assert len(after) >= len(first) + 2


def test_a_scheme_without_a_file_system_is_one_sentence_and_the_job_runs(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.attach(spark, Hold(), max=2, journal="nowhere://bucket/jobs") as handle:
        turns(handle, 3)
        assert handle.status().state == "running"
    warnings = [each for each in caplog.messages if "keeps no journal now" in each]
    assert len(warnings) == 1
    assert 'No FileSystem for scheme "nowhere"' in warnings[0]
    assert "\n" not in warnings[0]


def test_a_store_that_is_away_costs_a_warning_and_no_turn(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    began_s = perf_counter()
    with penstock.attach(spark, Hold(), max=2, journal=f"hdfs://127.0.0.1:{port}/jobs") as handle:
        assert perf_counter() - began_s < 4.0
        turns(handle, 5)
        began_s = perf_counter()
    assert perf_counter() - began_s < 15.0
    assert caplog.text.count("keeps no journal now") == 1


@pytest.mark.usefixtures("quick")
def test_a_store_that_comes_back_gets_what_waited(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    place = tmp_path / "mount"
    place.write_text("not a folder yet")
    kept = journal(spark, place.as_uri())
    assert kept.recall() == []
    kept.write(turn(1000.0))
    wait_until(lambda: "keeps no journal now" in caplog.text, 30.0, "nothing was said")
    kept.write(turn(1015.0))
    place.unlink()
    wait_until(lambda: "is kept again" in caplog.text, 30.0, "nobody tries again")
    kept.close()
    assert [step.at_s for step in recalled(spark, place.as_uri())] == [1000.0, 1015.0]
    assert caplog.text.count("keeps no journal now") == 1


def test_a_week_is_recalled_in_under_two_seconds(spark: SparkSession, tmp_path: Path) -> None:
    """40,320 turns of 15 s with ten executors, of which as many are read as are remembered."""
    samples = tuple(
        ExecutorSample(str(n), 1e9, cpu_fraction=0.5, busy_fraction=0.5, memory_fraction=0.25)
        for n in range(10)
    )
    uri = tmp_path.as_uri()
    kept = journal(spark, uri)
    kept.recall()
    began_s = now_s() - 7 * 86_400.0
    for number in range(40_320):
        kept.write(with_executors(began_s + 15.0 * number, samples))
    kept.close()
    started_s = perf_counter()
    steps = recalled(spark, uri)
    took_s = perf_counter() - started_s
    print(f"recalled {len(steps)} steps in {took_s:.2f} s")
    assert len(steps) == 4096
    assert took_s < 2.0


@pytest.mark.usefixtures("quick")
def test_hdfs_appends_and_keeps_what_a_killed_driver_had_copied(
    spark: SparkSession, cluster_store: Hdfs
) -> None:
    Driver(spark).context.hadoopConfiguration().set("dfs.replication", "1")
    uri = f"{cluster_store.uri}/jobs"
    kept = journal(spark, uri)
    assert kept.recall() == []
    for number in range(4):
        kept.write(turn(1000.0 + number))
        wait_until(
            lambda n=number: len(recalled(spark, uri)) == n + 1,  # type: ignore[misc]
            60.0,
            "it is not copied",
            every_s=0.5,
        )
    # The driver is gone now, and has closed nothing.
    (files,) = parts_of(StoreFolder(Driver(spark), uri, "orders").names())
    assert files == ["19700101T001640-0000-000000000000.jsonl"]  # it grew
    assert [step.at_s for step in recalled(spark, uri)] == [1000.0, 1001.0, 1002.0, 1003.0]
    kept.close()


@pytest.mark.usefixtures("quick")
def test_an_hdfs_that_hangs_costs_no_turn(
    spark: SparkSession, cluster_store: Hdfs, caplog: pytest.LogCaptureFixture
) -> None:
    Driver(spark).context.hadoopConfiguration().set("dfs.replication", "1")
    uri = f"{cluster_store.uri}/hangs"
    with penstock.attach(spark, Hold(), max=2, journal=uri) as handle:
        turns(handle, 3)
        cluster_store.name_node.pause()
        try:
            turns(handle, 8)
            assert handle.status().state == "running"
        finally:
            cluster_store.name_node.resume()
        turns(handle, 6)
    assert len(recalled(spark, uri, Driver(spark).conf("spark.app.name"))) >= 17
    cluster_store.name_node.pause()
    try:
        began_s = perf_counter()
        with penstock.attach(spark, Hold(), max=2, journal=uri) as handle:
            assert perf_counter() - began_s < 4.0
            turns(handle, 2)
    finally:
        cluster_store.name_node.resume()
    assert "does not answer in time" in caplog.text
