"""The live page of a real job, and of journals in a store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.testbed import wait_until
from tests.drivers import end_driver
from tests.observe.dashboard.played import recorded_run
from tests.prometheus import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

UP_S = 200.0
POLICY = "penstock:executor_warmup=0s,assumed_startup=5s"


def data(port: int) -> Any:
    try:
        with urlopen(f"http://127.0.0.1:{port}/data", timeout=30.0) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    """A driver that is its own executor, with a count of what a rate source makes."""
    from pyspark.sql import SparkSession

    end_driver()
    builder = SparkSession.builder.master("local[2]").appName("orders")
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    stream = session.readStream.format("rate").option("rowsPerSecond", 100).load()
    counts = stream.selectExpr("value % 50 AS key").groupBy("key").count()
    writer = counts.writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    try:
        wait_until(lambda: query.lastProgress is not None, UP_S, "the query does not start")
        yield session
    finally:
        query.stop()
        session.stop()
        end_driver()


def test_the_page_of_a_real_job_has_its_fleet_and_forecast_and_continues_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    port, path = free_port(), tmp_path / "live.jsonl"
    options: dict[str, Any] = {"dashboard": f"127.0.0.1:{port}", "every_s": 1.0, "max": 3}
    options["mode"] = "recommend"
    with penstock.attach(spark, POLICY, journal=path, price=0.36, currency="EUR", **options):

        def planned() -> Any:
            found = data(port) or {"job": None}
            return found["job"] and found["job"]["sizes"] and found["job"]["stages"] and found

        found = wait_until(planned, UP_S, f"no forecast on the page: {data(port)}")
        job, (summary,) = found["job"], found["jobs"]
        assert (summary["name"], summary["state"]) == ("orders", "recommends only")
        assert (job["policy"], job["max_executors"], job["slo_s"]) == (POLICY, 3, 10.0)
        assert job["outlook"]["load"][-1] > 0.0
        assert [row["name"] for row in job["executors"]] != []
        assert job["account"]["paid"].endswith(" EUR")
        assert max(len(line) for line in path.read_bytes().splitlines()) < 6000
        with pytest.raises(ConfigError, match=f"dashboard cannot be served at 127.0.0.1:{port}"):
            penstock.attach(spark, POLICY, **options)
        began_s = job["begin_s"]
    assert data(port) is None
    with penstock.attach(spark, POLICY, journal=path, **options):
        again = data(port)
        assert again["job"]["begin_s"] == began_s
        assert again["jobs"][0]["state"] == "recommends only"


def test_journals_in_a_store_are_shown_and_what_is_not_there_is_one_sentence(
    tmp_path: Path,
) -> None:
    from penstock.core.journal import write_all

    header, steps = recorded_run()
    (tmp_path / "orders").mkdir()
    write_all(tmp_path / "orders" / "20261117T080000-0000-000000000000.jsonl", steps, header)
    port = free_port()
    command = [str(Path(sys.executable).with_name("penstock")), "dashboard"]
    where = ["--at", f"127.0.0.1:{port}"]
    with subprocess.Popen([*command, tmp_path.as_uri(), *where], text=True) as process:
        try:
            is_there = lambda: (found := data(port)) and found["job"]  # noqa: E731
            job = wait_until(is_there, UP_S, "the journal does not appear")
            assert job["max_executors"] == 8
            assert data(port)["jobs"][0]["name"] == "orders"
        finally:
            process.terminate()
    nowhere = (tmp_path / "nowhere").as_uri()
    ended = subprocess.run([*command, nowhere, *where], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"penstock: cannot read {nowhere}: ")
