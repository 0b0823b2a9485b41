"""The time of Python workers by stage and executor, with worked numbers and no Spark."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.spark.internals import SqlMetrics
from penstock.spark.sensor.executors import cpu_per_busy
from penstock.spark.sensor.python_time import PythonTimes, python_seconds
from penstock.spark.sensor.tasks import FinishedTask, Spread
from tests.spark.actuator.simulated_driver import SimulatedDriver

HEAD = "total (min, med, max (stageId: taskId))\n"
RUN, SENT = "time to run Python workers", "data sent to Python workers"


class SqlDriver(SimulatedDriver):
    """A driver whose SQL executions are given; ``None`` makes the call fail."""

    def __init__(self, *executions: SqlMetrics | None) -> None:
        super().__init__(executors=1)
        self.executions = executions
        self.asked = 0

    def sql_metrics(self, stages: Collection[int], newest: int) -> list[SqlMetrics]:
        self.asked += 1
        if None in self.executions:
            raise Py4JError("Method executionsList does not exist")
        found = [each for each in self.executions if each and each.stages & set(stages)]
        return found[-newest:]


def test_each_node_counts_in_the_stage_that_ran_it() -> None:
    """Two nodes in stage 7, one in stage 8; the join of nothing ran in none."""
    metrics = (
        (RUN, HEAD + "3.0 s (1.5 s, 1.5 s, 1.5 s (stage 7.0: task 66))"),
        (RUN, HEAD + "500 ms (200 ms, 300 ms, 300 ms (stage 7.0: task 67))"),
        (RUN, HEAD + "1.5 m (40.0 s, 50.0 s, 50.0 s (stage 8.1: task 70))"),
        (RUN, "0 ms"),
        ("time to initialize Python workers", "9.0 s"),
    )
    seconds = python_seconds(SqlMetrics(frozenset({7, 8, 9}), metrics), {7: 4.0, 8: 99.0})
    assert seconds == {7: 3.5, 8: 90.0}


def test_a_stage_is_asked_for_once() -> None:
    driver = SqlDriver(SqlMetrics(frozenset({4}), ((RUN, "800 ms"),)))
    times = PythonTimes(driver)
    assert [times.read({4: 1.0}), times.read({4: 1.0})] == [{4: 0.8}, {4: 0.8}]
    assert driver.asked == 1


@pytest.mark.parametrize(
    ("execution", "problem"),
    [
        (SqlMetrics(frozenset({4}), ((SENT, "5.3 KiB"),)), "is not measured by this version"),
        (None, "cannot be read: Method executionsList does not exist"),
    ],
)
def test_where_python_time_is_not_measured_that_is_said_once(
    execution: SqlMetrics | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver = SqlDriver(execution)
    times = PythonTimes(driver)
    with caplog.at_level(logging.WARNING, "penstock"):
        for stage in (4, 5, 6):
            times.read({stage: 1.0})
    (said,) = [record.getMessage() for record in caplog.records]
    assert problem in said
    assert "take a job with Python UDFs for idle" in said
    assert driver.asked == 1


def test_a_job_without_python_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """State stores have the metrics of Python, all zero."""
    times = PythonTimes(SqlDriver(SqlMetrics(frozenset({4}), ((SENT, "0.0 B"), (RUN, "0 ms")))))
    assert times.read({4: 1.0}) == {4: 0.0}
    assert not caplog.records


def test_executors_get_their_share_of_the_python_time() -> None:
    """Executor 1: 0.1 s of Java, 0.9 s off the cpu; executor 2: 0.2 and 0.3 s, 0.5 s of shuffle.
    Python ran for half of the time off the cpu. A stage without Python adds what Java used."""
    python = [
        FinishedTask("1", duration_s=1.0, run_s=1.0, cpu_s=0.1),
        FinishedTask("2", duration_s=1.0, run_s=1.0, cpu_s=0.2, fetch_wait_s=0.5),
    ]
    plain = [FinishedTask("2", duration_s=1.0, run_s=0.9, cpu_s=0.85)]
    shares = cpu_per_busy([(0.5, python), (0.0, plain)])
    assert shares == {
        "1": pytest.approx(0.1 + 0.45),
        "2": pytest.approx((0.2 + 0.15 + 0.85) / 2),
    }


def test_time_per_record_varies_by_what_tasks_of_different_sizes_show() -> None:
    """Mean 10 ms. 100 records at 11 ms and 400 at 9.75 ms: 100 * 0.1**2 + 400 * 0.025**2."""
    tasks = [
        FinishedTask("1", 2.0, 1.1, 1.0, records=100),
        FinishedTask("2", 5.0, 3.9, 3.0, records=400),
        FinishedTask("2", 1.0, 0.1, 0.0, records=0),  # an empty partition says nothing
    ]
    assert Spread.of(tasks).cv2 == pytest.approx(1.25)
    assert Spread.of(tasks[:1]).cv2 is None
