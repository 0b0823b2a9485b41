"""The real thing: a broker, a cluster, a streaming query over both, and what breaks them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed import Broker, Testbed, find_java, paced, wait_until
from penstock.testbed import servers as servers_module
from penstock.testbed.jars import BROKER, fetch
from penstock.testbed.processes import Processes
from penstock.testbed.servers import LOOPBACK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def new_topic(bed: Testbed, partitions: int) -> str:
    name = f"topic-{uuid4().hex[:8]}"
    bed.create_topic(name, partitions)
    return name


def produce(bed: Testbed, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(bed.broker.client_settings)
    for number in range(records):
        producer.produce(topic, key=str(number % 7), value=str(number))
    assert producer.flush(30.0) == 0


def read_back(bed: Testbed, topic: str, records: int) -> list[bytes]:
    from confluent_kafka import Consumer

    settings = bed.broker.client_settings
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < records and (got := consumer.consume(records, timeout=20.0)):
            values += [value for each in got if (value := each.value()) is not None]
    finally:
        consumer.close()
    return values


def stream(bed: Testbed, spark: SparkSession, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bed.bootstrap_servers, "subscribe": topic}
    reader = spark.readStream.format("kafka").options(**options)
    return reader.option("startingOffsets", "earliest").load()


@contextmanager
def counting(frame: DataFrame, checkpoint: Path) -> Iterator[StreamingQuery]:
    """A query that counts a stream's records into a table named after it."""
    writer = frame.groupBy().count().writeStream.format("memory").outputMode("complete")
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.queryName(f"count_{uuid4().hex[:8]}").start()
    try:
        yield query
    finally:
        query.stop()


def counted(spark: SparkSession, query: StreamingQuery) -> int:
    rows = spark.table(query.name).collect()
    return int(rows[0]["count"]) if rows else 0


def mentioning(text: str) -> list[int]:
    """Processes with this text among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_records_that_were_written_are_read_back(bed: Testbed) -> None:
    topic = new_topic(bed, partitions=3)
    produce(bed, topic, 1000)
    assert sorted(map(int, read_back(bed, topic, 1000))) == list(range(1000))


def test_a_topic_that_exists_or_cannot_exist_is_one_sentence(bed: Testbed) -> None:
    topic = new_topic(bed, partitions=1)
    with pytest.raises(ConfigError, match=f"cannot create topic '{topic}': .*already exists"):
        bed.create_topic(topic, 1)
    with pytest.raises(ConfigError, match="topic 'x' needs at least one partition, not 0"):
        bed.create_topic("x", 0)


def test_a_paused_broker_is_silent_and_a_resumed_one_has_lost_nothing(bed: Testbed) -> None:
    topic = new_topic(bed, partitions=2)
    produce(bed, topic, 100)
    bed.pause_broker()
    try:
        assert not bed.broker.answers()
    finally:
        bed.resume_broker()
    wait_until(bed.broker.answers, 30.0, "the broker did not come back")
    produce(bed, topic, 100)
    assert len(read_back(bed, topic, 200)) == 200


def test_a_streaming_query_on_the_cluster_counts_a_topic(
    bed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic(bed, partitions=4)
    produce(bed, topic, 500)
    with counting(stream(bed, spark, topic), tmp_path) as query:
        query.processAllAvailable()
        assert counted(spark, query) == 500
        produce(bed, topic, 250)
        query.processAllAvailable()
        assert counted(spark, query) == 750


def test_the_fleet_starts_at_the_size_asked_for_and_a_killed_executor_is_replaced(
    bed: Testbed, spark: SparkSession
) -> None:
    def fleet() -> list[str]:
        return [each.id for each in bed.executors()]

    wait_until(lambda: len(fleet()) == 2, 60.0, "two executors did not come")
    lost = bed.kill_executor()
    wait_until(lambda: lost.id not in fleet(), 10.0, "the executor survived its SIGKILL")
    wait_until(lambda: len(fleet()) == 2, 60.0, "nobody replaced the executor")
    with pytest.raises(ConfigError, match="no executor 999 to kill: alive are"):
        bed.kill_executor("999")
    assert spark.range(0, 1000, 1, 4).count() == 1000


def test_a_paced_record_takes_its_time_and_none_is_lost(spark: SparkSession) -> None:
    """400 records at 5 ms on 2 executors: at least 1 s of waiting, however fast the machine."""
    from pyspark.sql import functions

    frame = paced(spark.range(0, 400, 1, 2), cost_s=0.005)
    assert frame.agg(functions.count("*")).collect()[0][0] == 400
    dearer = paced(spark.range(0, 4, 1, 1), functions.col("id") * 0.01)
    assert [row["id"] for row in dearer.collect()] == [0, 1, 2, 3]
    stages = spark.sparkContext._jsc.sc().statusStore()
    runs = [task_seconds(stages, stage) for stage in recent_stages(spark)]
    assert max(runs) >= 2.0


def recent_stages(spark: SparkSession) -> list[int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
    return [stage for job in jobs if job is not None for stage in job.stageIds]


def task_seconds(store: object, stage: int) -> float:
    """How long the tasks of a stage ran, added up."""
    return float(store.lastStageAttempt(stage).executorRunTime()) / 1000.0  # type: ignore[attr-defined]


def test_no_pace_is_no_operator_and_an_absurd_one_is_refused(spark: SparkSession) -> None:
    frame = spark.range(3)
    assert paced(frame, 0) is frame
    with pytest.raises(ConfigError, match=r"between 0 and 60 s per record, not -1"):
        paced(frame, -1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_everything_listens_on_the_loopback_interface_only(
    bed: Testbed, spark: SparkSession
) -> None:
    assert spark.range(1).count() == 1
    pids = mentioning(str(bed.run_directory))
    assert len(pids) >= 5  # broker, master, worker, driver, executors
    addresses = [address for pid in pids for address in listening_addresses(pid)]
    assert len(addresses) >= 8
    assert set(addresses) == {LOOPBACK}


def listening_addresses(pid: int) -> list[str]:
    """Where a process accepts connections, from the tables of the kernel."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    own = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                # The last four bytes, in the order of the machine: 0100007F is 127.0.0.1.
                last = bytes.fromhex(fields[1].partition(":")[0][-8:])
                addresses.append(".".join(map(str, reversed(last))))
    return addresses


def test_logs_are_in_the_run_directory(bed: Testbed) -> None:
    logs = {path.name for path in (bed.run_directory / "logs").iterdir()}
    assert {"broker.log", "master.log", "worker-node-1.log"} <= logs


def test_settings_of_the_caller_win_and_an_impossible_fleet_is_refused(bed: Testbed) -> None:
    settings = bed.spark_conf(initial_executors=3, **{"spark.executor.memory": "700m"})
    assert settings["spark.executor.memory"] == "700m"
    assert settings["spark.dynamicAllocation.initialExecutors"] == "3"
    with pytest.raises(ConfigError, match="between 1 and the 4 slots, not 5"):
        bed.spark_conf(initial_executors=5)


def test_an_occupied_port_stops_the_start_and_leaves_no_process(
    bed: Testbed, tmp_path: Path
) -> None:
    second = Testbed(run_directory=tmp_path, kafka_port=bed.broker.port)
    with pytest.raises(ConfigError, match=f"port {bed.broker.port} for the broker is taken"):
        second.__enter__()
    assert mentioning(str(tmp_path)) == []


def test_a_broker_that_cannot_come_up_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    """A file stands where its data should go."""
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "data").write_text("in the way")
    with pytest.raises(
        ConfigError, match=r"the formatting of the broker failed: .*broker/data"
    ) as caught:
        Testbed(run_directory=tmp_path, spark=False).__enter__()
    assert "\n" not in str(caught.value)
    assert mentioning(str(tmp_path)) == []


def test_a_broker_that_dies_while_it_starts_says_why(bed: Testbed, tmp_path: Path) -> None:
    """Its port was free when it was looked at and is not when it is bound."""
    java, jars = find_java(), fetch(BROKER, find_java())
    with Processes(tmp_path / "logs") as processes, pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers_module, "require_free", lambda port, _: port)
        with pytest.raises(ConfigError, match=r"ended while it started: .*Address already in use"):
            Broker.start(processes, java, os.environ, tmp_path, jars=jars, port=bed.broker.port)


USER = """
import os, sys, time
from penstock.testbed import Testbed
with Testbed(slots=2, run_directory=sys.argv[1]) as bed:
    os.environ.update(bed.driver_environment)
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.config(map=bed.spark_conf(initial_executors=1)).getOrCreate()
    assert spark.range(10).count() == 10
    print("busy", flush=True)
    spark.range(0, 10**15, 1, 2).selectExpr("sum(id)").collect()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_parent_killed_in_the_middle_of_a_job_leaves_no_java_behind(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        argv = [sys.executable, "-c", USER, str(tmp_path)]
        parent = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "busy\n", (tmp_path / "errors").read_text()
    everything = mentioning(str(tmp_path))
    assert len(everything) >= 6  # the parent, broker, master, worker, driver, executor
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not mentioning(str(tmp_path)), 30.0, "some process stayed behind")
