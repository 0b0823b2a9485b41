"""The live page of a real job, and of journals in a store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.testbed import wait_until
from tests.observe.dashboard.played import recorded_run
from tests.prometheus import free_port
from tests.spark.test_attach import query, spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["query", "spark"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

POLICY = "penstock:executor_warmup=0s,assumed_startup=5s"


def data(port: int) -> Any:
    try:
        with urlopen(f"http://127.0.0.1:{port}/data", timeout=30.0) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.mark.usefixtures("query")
def test_the_page_of_a_real_job_has_its_fleet_and_forecast_and_continues_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    port, path = free_port(), tmp_path / "live.jsonl"
    options: dict[str, Any] = {"dashboard": f"127.0.0.1:{port}", "every_s": 1.0, "max": 3}
    with penstock.attach(spark, POLICY, journal=path, price=0.36, currency="EUR", **options):

        def planned() -> Any:
            found = data(port)
            return found and found["job"] and found["job"]["sizes"] and found

        found = wait_until(planned, 150.0, f"no forecast on the page: {data(port)}")
        job, (summary,) = found["job"], found["jobs"]
        assert (summary["state"], job["max_executors"], job["slo_s"]) == ("acts", 3, 10.0)
        assert job["policy"] == POLICY
        assert summary["name"] == spark.sparkContext.appName
        assert job["outlook"]["load"][-1] > 0.0
        assert [row["name"] for row in job["executors"]] != []
        assert job["stages"] != []
        assert job["account"]["paid"].endswith(" EUR")
        assert max(len(line) for line in path.read_bytes().splitlines()) < 6000
        with pytest.raises(ConfigError, match=f"dashboard cannot be served at 127.0.0.1:{port}"):
            penstock.attach(spark, POLICY, mode="recommend", **options)
        began_s = job["begin_s"]
    assert data(port) is None
    with penstock.attach(spark, POLICY, mode="recommend", journal=path, **options):
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
            job = wait_until(is_there, 150.0, "the journal does not appear")
            assert job["max_executors"] == 8
            assert data(port)["jobs"][0]["name"] == "orders"
        finally:
            process.terminate()
    nowhere = (tmp_path / "nowhere").as_uri()
    ended = subprocess.run([*command, nowhere, *where], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"penstock: cannot read {nowhere}: ")
