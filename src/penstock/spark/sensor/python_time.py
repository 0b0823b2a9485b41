"""The time of Python workers, which Spark does not count as processor time.

``executorCpuTime`` is that of the executor's Java process alone. Since Spark 4.0 the plan nodes
that run Python have a metric of how long their workers ran. It is clock time: a UDF that waits, for
an HTTP service or for a core, counts as if it computed.
"""

import logging
import re
from collections.abc import Collection, Mapping

from penstock.spark.internals import JVM_ERRORS, Driver, SqlMetrics, first_line

log = logging.getLogger(__name__)

#: How many of the newest SQL executions are looked through for those of the newest stages.
NEWEST_EXECUTIONS = 16
_RUN = "time to run Python workers"
_SENT = "data sent to Python workers"
_TIME = re.compile(r"([\d.]+) (ms|s|m|h)\b")
_STAGE = re.compile(r"\(stage (\d+)\.")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_time(text: str) -> tuple[float, int | None]:
    """Seconds, and the stage of the slowest task where Spark names it, of a metric of time.

    >>> parse_time("66 ms")
    (0.066, None)
    >>> parse_time("total (min, med, max (stageId: taskId))\\n"
    ...            "3.7 s (1.5 s, 2.2 s, 2.2 s (stage 34.0: task 66))")
    (3.7, 34)
    """
    numbers = text.rpartition("\n")[2]
    time, stage = _TIME.match(numbers), _STAGE.search(numbers)
    seconds = float(time[1]) * _SECONDS[time[2]] if time else 0.0
    return seconds, int(stage[1]) if stage else None


def python_seconds(execution: SqlMetrics, off_cpu_s: Mapping[int, float]) -> dict[int, float]:
    """Seconds of Python workers by stage of one execution.

    Where Spark names no stage (one task ran), it is the one that spent most time off the cpu.

    >>> execution = SqlMetrics(frozenset({4, 5}), ((_RUN, "900 ms"), (_SENT, "2.0 KiB")))
    >>> python_seconds(execution, {4: 1.0, 5: 0.1})
    {4: 0.9}
    """
    seconds = dict.fromkeys(execution.stages & off_cpu_s.keys(), 0.0)
    for name, text in execution.metrics:
        spent_s, stage = parse_time(text) if name == _RUN else (0.0, None)
        if spent_s:
            stage = stage if stage is not None else max(seconds, key=off_cpu_s.__getitem__)
            if stage in seconds:
                seconds[stage] += spent_s
    return {stage: spent_s for stage, spent_s in seconds.items() if spent_s}


class PythonTimes:
    """Asks for the time of Python workers; warns once where this Spark does not measure it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._known: dict[int, float] = {}
        self._is_measured = True

    def read(self, off_cpu_s: Mapping[int, float]) -> Mapping[int, float]:
        """Seconds by stage; the argument has the stages, and what their tasks spent off the cpu."""
        unknown = off_cpu_s.keys() - self._known.keys()
        self._known = {stage: self._known[stage] for stage in off_cpu_s.keys() - unknown}
        if unknown and self._is_measured:
            for execution in self._executions(unknown):
                self._known |= dict.fromkeys(execution.stages & unknown, 0.0)
                self._known |= python_seconds(execution, off_cpu_s)
        return self._known

    def _executions(self, stages: Collection[int]) -> list[SqlMetrics]:
        try:
            executions = self._driver.sql_metrics(stages, NEWEST_EXECUTIONS)
        except JVM_ERRORS as error:
            self._give_up(f"cannot be read: {first_line(error)}")
            return []
        for execution in executions:
            found = dict(execution.metrics)
            sent = [text for name, text in execution.metrics if name == _SENT]
            if _RUN not in found and any(text[:1] not in ("", "0") for text in sent):
                self._give_up("is not measured by this version of Spark")
        return executions

    def _give_up(self, problem: str) -> None:
        self._is_measured = False
        log.warning(
            "the time of Python workers %s: cpu_fraction is that of Java alone, and rules that "
            "size by it (hpa, thresholds, daedalus) take a job with Python UDFs for idle",
            problem,
        )
