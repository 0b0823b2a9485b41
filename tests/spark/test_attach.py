"""Penstock attached to a real application on a real cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.core.journal import read_header, read_last_run, read_steps
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.lab.replay import differences, replay
from penstock.settings.header import recorded_spec
from penstock.settings.spark_conf import layers
from penstock.settings.toml import settle
from penstock.spark.attach import Attachment
from penstock.spark.changes import SettingsSource
from penstock.spark.internals import Driver
from penstock.testbed import Testbed, wait_until
from tests.drivers import end_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

UP_S = 120.0


@dataclass
class Dial:
    """A policy that wants what the test has set, and keeps how much past it was shown."""

    executors: int
    period_s: float = 0.5
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False
    seen: list[int] = field(default_factory=list)

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        self.seen.append(len(knowledge.history))
        return Decision.of(self.executors, Reason("dial", f"{self.executors} are wanted"))


@dataclass
class Broken(Dial):
    """A policy with a bug."""

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        raise ZeroDivisionError("a bug in the policy")


@pytest.fixture(scope="module")
def spark(bed: Testbed) -> Iterator[SparkSession]:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    end_driver()
    extra = {"spark.sql.shuffle.partitions": "6"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.driver_environment.items():
            patch.setenv(name, value)
        conf = SparkConf().setAll(list(bed.spark_conf(initial_executors=1, **extra).items()))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        end_driver()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[StreamingQuery]:
    """A stateful count, one batch a second, that has run two batches."""
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    counts = stream.selectExpr("value % 50 AS key").groupBy("key").count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName(uuid4().hex)
    writer = writer.option("checkpointLocation", str(tmp_path))
    running = writer.trigger(processingTime="1 second").start()
    try:
        committed(running, 2)
        yield running
    finally:
        running.stop()


@contextmanager
def attached(spark: SparkSession, policy: Any, **options: Any) -> Iterator[Attachment]:
    bounds = {"min": 1, "max": 4, **options}
    with penstock.attach(spark, policy, **bounds) as handle:
        yield handle


def last_batch(query: StreamingQuery) -> int:
    progress: Any = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def committed(query: StreamingQuery, batches: int) -> None:
    """Wait until it has committed so many more."""
    first = last_batch(query)
    wait_until(lambda: last_batch(query) >= first + batches, UP_S, "the query stands still")


def size(spark: SparkSession) -> int:
    """Executors that take work."""
    driver = Driver(spark)
    return len(set(driver.executor_ids()) - driver.leaving())


def come_to(spark: SparkSession, executors: int) -> None:
    wait_until(lambda: size(spark) == executors, UP_S, f"the fleet did not come to {executors}")


def failed_tasks(spark: SparkSession) -> int:
    """Of all executors, those that went included."""
    store: Any = Driver(spark).store.executorList(False)
    return sum(int(store.apply(number).failedTasks()) for number in range(store.size()))


def settled(handle: Attachment) -> None:
    condition: Callable[[], bool] = lambda: handle.status().is_settled  # noqa: E731
    wait_until(condition, UP_S, "the fleet did not settle")


def test_recommend_mode_says_what_it_would_do_and_moves_nothing(
    bed: Testbed, spark: SparkSession, query: StreamingQuery
) -> None:
    come_to(spark, 1)
    before = Driver(spark).requested_total_executors()
    with attached(spark, Dial(3), mode="recommend") as handle:
        wait_until(lambda: handle.status().decisions >= 3, UP_S, "nothing was decided")
        committed(query, 2)
        status = handle.status()
        assert "1 -> 3 executors: 3 are wanted (recommended only" in handle.explain(1)[0]
        wait_until(lambda: "executor-hours" in handle.status().account, UP_S, "there is no account")
    assert (status.mode, status.rescales) == ("recommend", 0)
    assert Driver(spark).requested_total_executors() == before == 1
    assert Driver(spark).locality_wait() == "3s"
    assert [each.id for each in bed.executors()] == ["0"]


def test_the_fleet_goes_up_takes_the_state_along_and_down_without_a_failed_task(
    bed: Testbed, spark: SparkSession, query: StreamingQuery, tmp_path: Path
) -> None:
    dial = Dial(1)
    failed = failed_tasks(spark)
    path = tmp_path / "live.jsonl"
    with attached(spark, dial, journal=path) as handle:
        come_to(spark, 1)
        old = set(Driver(spark).executor_ids())
        dial.executors = 3
        come_to(spark, 3)
        assert Driver(spark).locality_wait() == "0s"
        settled(handle)
        *_, step = read_steps(path)
        assert step.snapshot is not None
        samples = step.snapshot.executors
        moved = sum(each.state_partitions or 0 for each in samples if each.id not in old)
        assert moved >= 2  # of 6; with the usual wait, new executors get none
        assert Driver(spark).locality_wait() == "3s"
        assert Driver(spark).requested_total_executors() == 3
        dial.executors = 1
        come_to(spark, 1)
        wait_until(lambda: len(bed.executors()) == 1, UP_S, "a process stayed behind")
        settled(handle)
        assert Driver(spark).requested_total_executors() == 1
        committed(query, 2)
        status = handle.status()
    assert (status.rescales, status.losses, status.error) == (2, 0, "")
    assert failed_tasks(spark) == failed
    assert query.isActive


def test_a_killed_executor_is_replaced_and_a_changed_target_repaired(
    bed: Testbed, spark: SparkSession, query: StreamingQuery
) -> None:
    with attached(spark, Dial(2)) as handle:
        come_to(spark, 2)
        settled(handle)
        lost = bed.kill_executor()
        wait_until(lambda: handle.status().losses == 1, UP_S, "the loss was not noticed")
        come_to(spark, 2)
        assert lost.id not in Driver(spark).executor_ids()
        settled(handle)
        # Somebody else asks for none: after the next loss nobody would come.
        Driver(spark).request_total_executors(0)
        wait_until(lambda: handle.status().repairs >= 1, UP_S, "the target was not repaired")
        assert Driver(spark).requested_total_executors() == 2
        committed(query, 2)
        assert handle.status().state == "running"


def test_a_bug_in_the_policy_is_logged_once_and_the_job_goes_on_at_its_size(
    spark: SparkSession, query: StreamingQuery, caplog: pytest.LogCaptureFixture
) -> None:
    before = size(spark)
    with caplog.at_level(logging.INFO), attached(spark, Broken(3)) as handle:
        wait_until(lambda: handle.status().state == "failed", UP_S, "it did not fail")
        committed(query, 2)
        assert handle.status().error == "ZeroDivisionError: a bug in the policy"
    said = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert said == ["Penstock failed and lets go; the job goes on at its size"]
    assert query.isActive
    assert size(spark) == before
    assert Driver(spark).locality_wait() == "3s"


def test_a_paused_scaler_decides_nothing_until_it_is_resumed(
    spark: SparkSession, query: StreamingQuery
) -> None:
    with attached(spark, Dial(1)) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
        handle.pause()
        wait_until(lambda: handle.status().state == "paused", UP_S, "it did not pause")
        committed(query, 1)
        decisions = handle.status().decisions
        committed(query, 2)
        assert handle.status().decisions == decisions
        handle.resume()
        wait_until(lambda: handle.status().decisions > decisions, UP_S, "it did not go on")
    assert handle.status().state == "stopped"
    handle.stop()
    assert query.isActive


@pytest.mark.usefixtures("query")
def test_a_restarted_driver_goes_on_from_its_journal(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    with attached(spark, Dial(1), journal=path) as handle:
        wait_until(lambda: handle.status().decisions >= 4, UP_S, "nothing was decided")
    written = len(list(read_steps(path)))
    dial = Dial(1)
    with attached(spark, dial, journal=path) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
    assert dial.seen[0] == written + 1
    assert len(list(read_steps(path))) == written + len(dial.seen)


@pytest.mark.usefixtures("query")
def test_limits_in_the_policy_text_hold_and_the_header_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "live.jsonl"
    options = {"every_s": 0.5, "slo_s": "20s", "journal": path}
    with attached(spark, "ds2:cooldown=60s,max_executors=3", **options) as handle:
        wait_until(lambda: handle.status().decisions >= 4, UP_S, "nothing was decided")
    header = read_header(path)
    assert (header.limits["cooldown_s"], header.limits["max_executors"]) == (60.0, 3)
    assert (header.policy, header.goal["slo_s"]) == ("ds2", 20.0)
    assert header.run == {"policy": "ds2:cooldown=60s,max_executors=3"}
    past, steps = read_last_run(path)
    assert differences(steps, replay(steps, recorded_spec(header), past)) == []
    with attached(spark, "ds2:cooldown=30s", **options) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
    assert read_header(path).limits["cooldown_s"] == 30.0
    assert read_header(tmp_path / "live.jsonl.1") == header
    past, steps = read_last_run(path)
    assert len(past) >= 4
    assert differences(steps, replay(steps, recorded_spec(read_header(path)), past)) == []


def test_bounds_and_mode_change_while_it_runs(
    spark: SparkSession, query: StreamingQuery, tmp_path: Path
) -> None:
    path = tmp_path / "live.jsonl"
    come_to(spark, 1)
    with attached(spark, Dial(3), max=1, journal=path) as handle:
        wait_until(lambda: handle.status().decisions >= 2, UP_S, "nothing was decided")
        assert handle.status().target == 1
        with pytest.raises(ConfigError, match="max_executors must be at least min_executors"):
            handle.update(min=3)
        with pytest.raises(ConfigError, match="update needs something to change"):
            handle.update()
        handle.update(max=2, slo_s="20s")
        come_to(spark, 2)
        settled(handle)
        handle.update(mode="recommend")
        wait_until(lambda: handle.status().mode == "recommend", UP_S, "it still acts")
        handle.update(max=4)
        committed(query, 2)
        assert size(spark) == 2
        handle.update(mode="act", max=1)
        come_to(spark, 1)
        assert handle.status().mode == "act"
    header = read_header(path)
    assert (header.limits["max_executors"], header.goal["slo_s"]) == (1, 20.0)
    assert read_header(tmp_path / "live.jsonl.1").limits["max_executors"] == 4


def test_what_is_asked_of_queries_changes_while_it_runs(
    spark: SparkSession, query: StreamingQuery, tmp_path: Path
) -> None:
    path, name = tmp_path / "live.jsonl", str(query.name)
    asked = {name: {"slo": "5s", "weight": 2.0}}
    with attached(spark, Dial(1), mode="recommend", journal=path, queries=asked) as handle:
        wait_until(lambda: handle.status().delay_s is not None, UP_S, "nothing is measured")
        with pytest.raises(ConfigError, match="weight must be finite and more than 0, not -1"):
            handle.update(queries={name: {"weight": -1}})
        handle.update(queries={name: {"exclude": True}})
        wait_until(lambda: handle.status().delay_s is None, UP_S, "the query still counts")
    last, before = [list(read_steps(each)) for each in (path, tmp_path / "live.jsonl.1")]
    seen = [steps[-1].snapshot.queries[0] for steps in (before, last) if steps[-1].snapshot]
    assert [(each.name, each.slo_s, each.weight, each.excluded) for each in seen] == [
        (name, 5.0, 2.0, False),
        (name, None, 1.0, True),
    ]
    assert read_header(path).goal["queries"][0]["exclude"] is True


def test_a_switch_outside_of_the_driver_pauses_and_sets_the_mode(
    spark: SparkSession, query: StreamingQuery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    switch = tmp_path / "switch"
    come_to(spark, 1)
    with attached(spark, dial := Dial(1), switch=switch) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
        switch.write_text("pause\n")
        wait_until(lambda: handle.status().state == "paused", UP_S, "it did not pause")
        dial.executors = 2
        committed(query, 2)
        assert size(spark) == 1
        switch.write_text("recommend\n")
        wait_until(lambda: handle.status().mode == "recommend", UP_S, "it still acts")
        committed(query, 2)
        assert size(spark) == 1
        switch.write_text("go\n")  # a warning, and no other change
        wait_until(lambda: "recommend or act, not 'go'" in caplog.text, UP_S, "nothing was said")
        assert handle.status().mode == "recommend"
        switch.write_text("act\n")
        come_to(spark, 2)
        dial.executors = 1
        switch.unlink()
        come_to(spark, 1)


def test_settings_that_change_on_disk_are_taken_over(
    spark: SparkSession, query: StreamingQuery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "penstock.toml"
    text = '[policy]\nname = "static:4"\nperiod_s = 0.5\n[limits]\nmax_executors = {}\n'
    path.write_text(text.format(1))
    come_to(spark, 1)
    settings = settle(layers({}, path))
    source = SettingsSource(path, lambda: settle(layers({}, path)))
    with Attachment(spark, settings, source=source) as handle:
        wait_until(lambda: handle.status().decisions >= 1, UP_S, "nothing was decided")
        path.write_text("[limits]\nmax_executor = 2\n")  # a mistake: the old settings stay
        wait_until(lambda: "not taken over" in caplog.text, UP_S, "nothing was said")
        committed(query, 1)
        assert size(spark) == 1
        path.write_text(text.format(2))
        come_to(spark, 2)
        settled(handle)
        path.write_text(text.format(1))
        come_to(spark, 1)


def test_an_application_that_cannot_have_the_fleet_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"spark.cores.max=4 gives 4: set spark.cores.max=9"):
        penstock.attach(spark, "ds2", min=9, max=16)


def test_a_stopped_session_is_refused(spark: SparkSession) -> None:
    """The last test of this module: it ends the session."""
    spark.stop()
    with pytest.raises(ConfigError, match="the Spark session is stopped: attach to a running one"):
        penstock.attach(spark, "ds2")
