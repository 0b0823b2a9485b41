"""The driver of the job under chaos, a process of its own that can be killed and started again.

``python -m tests.chaos.driver SETTINGS`` starts the job, attaches Penstock, and then obeys: one
command as JSON per line of its input, one answer per line of its output. Commands that break
something inside the driver say so; `heal` repairs it.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import penstock
from penstock.core.clock import LoopTime
from penstock.core.errors import ConfigError
from penstock.spark.actuator.actuator import Patience
from penstock.spark.internals import Driver, status_store
from penstock.spark.sensor import executors, progress, stages
from tests.chaos.policy import COST_S, MAX, MIN, FollowLoad
from tests.survival.scene import counting, now_s
from tests.survival.test_blindness import Sick, fail

#: Where times that Spark reports are read.
READERS: tuple[Any, ...] = (executors, progress, stages)
#: Spark itself adds listeners for the session of each query, until that is collected.
SPARK = "org.apache.spark."
#: Executors that do not come are given up after this; by default it is two minutes.
ARRIVE_S = 20.0


class Listener(StreamingQueryListener):
    """A listener of the user that hangs until it is freed."""

    def __init__(self) -> None:
        self.freed = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.freed.wait(300.0)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


class LogLines(logging.Handler):
    """What Penstock logs: level and text."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


def lie(value: Any, how: str) -> Any:
    """An answer of the status store with numbers that cannot be, or without half of its fields.

    >>> lie({"id": "1", "cores": 2, "on": True}, "negative")
    {'id': '1', 'cores': -3, 'on': True}
    >>> lie([{"id": "1", "cores": 2, "peak": 3}], "other version")
    [{'id': '1', 'peak': 3}]
    """
    if isinstance(value, dict):
        pairs = list(value.items())
        kept = pairs[::2] if how == "other version" else pairs
        return {key: lie(each, how) for key, each in kept}
    if isinstance(value, list):
        return [lie(each, how) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or how == "other version":
        return value
    return float("nan") if how == "nan" else -1 - value


class ScaledJob:
    """The job, what scales it, and the commands; each public method is one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._log = LogLines()
        logging.getLogger("penstock").addHandler(self._log)
        logging.getLogger("penstock").setLevel(logging.INFO)
        conf = SparkConf().setAll(list(settings["conf"].items()))
        self._spark = SparkSession.builder.config(conf=conf).getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        self._driver = Driver(self._spark)  # another one than the scaler's, which may be broken
        self._heal: list[Callable[[], object]] = []
        # PySpark's server for calls from Java stays once it runs: it is no leak of a fault.
        self.block_listener()
        self.heal()
        self._start_query()
        self._attach()

    def _start_query(self) -> None:
        bed: Any = SimpleNamespace(bootstrap_servers=self._settings["bootstrap"])
        place = (self._settings["topic"], self._settings["output"])
        self._running = ExitStack()
        self._query = self._running.enter_context(
            counting(bed, self._spark, *place, Path(self._settings["checkpoint"]), cost_s=COST_S)
        )

    def _attach(self) -> None:
        self._handle = penstock.attach(
            self._spark, FollowLoad(), min=MIN, max=MAX, journal=self._settings["journal"],
            patience=Patience(arrive_s=ARRIVE_S),
        )  # fmt: skip

    # -- What the runner wants to know -----------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The scaler; does not ask Java."""
        steps = self._handle._loop.steps
        found: dict[str, Any] = msgspec.to_builtins(self._handle.status())
        code = steps[-1].decision.reasons[0].code if steps else ""
        held = Path("/proc/self/fd")
        return found | {
            "code": code,
            "threads": threading.active_count(),
            "files": len(list(held.iterdir())),
        }

    def log(self, since: int) -> list[tuple[str, str]]:
        return self._log.lines[since:]

    def job(self) -> dict[str, Any]:
        """The query and the application, as Java knows them."""
        report: Any = self._query.lastProgress
        driver = self._driver
        found = {"offsets": {}, "before": {}} if report is None else _offsets(report.json)
        failed = sum(int(each["failedTasks"]) for each in driver.executors_ever())
        bus = self._driver.context.listenerBus()
        kinds = [str(each.getClass().getName()) for each in bus.listeners()]
        manager: Any = self._spark.streams._jsqm
        return found | {
            "is_active": self._query.isActive,
            "error": str(self._query.exception() or "")[:300],
            "batch": -1 if report is None else int(report["batchId"]),
            "executors": sorted(driver.executor_ids()),
            "leaving": sorted(driver.leaving()),
            "requested": driver.requested_total_executors(),
            "failed_tasks": failed,
            "listeners": [each for each in kinds if not each.startswith(SPARK)]
            + [len(list(manager.listListeners()))],
        }

    def leaving(self) -> list[str]:
        return sorted(self._driver.leaving())

    def processes(self) -> dict[str, int]:
        gateway: Any = SparkContext._gateway
        return {"python": os.getpid(), "java": int(gateway.proc.pid)}

    # -- What others do to the job ---------------------------------------------------------------

    def request(self, executors: int) -> None:
        """Somebody else sets the target."""
        self._driver.request_total_executors(executors)

    def end_idle(self) -> list[str]:
        """Somebody else ends an executor, if one is idle."""
        driver = self._driver
        newest = sorted(set(driver.executor_ids()) - driver.leaving(), key=int)[-1:]
        return driver.kill_idle(newest)

    def attach_again(self) -> str:
        """A second attachment at once; what it is told."""
        try:
            penstock.attach(self._spark, FollowLoad(), min=MIN, max=MAX).stop()
        except ConfigError as error:
            return str(error)
        return ""

    def restart_query(self) -> None:
        self._running.close()
        self._start_query()

    def restart_scaler(self) -> None:
        self._handle.stop()
        self._attach()

    def update(self, most: int) -> None:
        self._handle.update(max=most)

    # -- What breaks inside the driver -----------------------------------------------------------

    def break_part(self, part: str, how: str) -> None:
        """The status store (``store``) or the scheduler (``backend``) is slow or fails."""
        driver: Any = self._handle._loop._driver
        healthy, cured = getattr(driver, part), threading.Event()
        suffer = fail if how == "fails" else lambda: _wait(cured)
        setattr(driver, part, Sick(healthy, suffer))
        self._heal += [lambda: setattr(driver, part, healthy), cured.set]

    def lying_store(self, how: str) -> None:
        honest = status_store._parse

        def parse(text: Any) -> Any:
            return lie(honest(text), how)

        status_store._parse = parse
        self._heal.append(lambda: setattr(status_store, "_parse", honest))

    def block_listener(self) -> None:
        listener = Listener()
        self._spark.streams.addListener(listener)
        self._heal += [listener.freed.set, lambda: self._spark.streams.removeListener(listener)]

    def set_clock(self, ahead_s: float) -> None:
        """Times that are read or reported from now on are those of a clock that was set."""
        jumped_at_s, usual = now_s(), progress.parse_instant

        def parse_instant(text: str) -> float:
            at_s = usual(text)
            return at_s + ahead_s if at_s >= jumped_at_s else at_s

        def set_all(ahead_s: float, parse: Callable[[str], float]) -> None:
            for each in gc.get_objects():
                if type(each) is LoopTime:  # others may be dead references
                    each._wall = lambda: now_s() + ahead_s
            for module in READERS:
                module.parse_instant = parse

        set_all(ahead_s, parse_instant)
        self._heal.append(lambda: set_all(0.0, usual))

    def heal(self) -> None:
        while self._heal:
            self._heal.pop(0)()


def _wait(cured: threading.Event) -> None:
    cured.wait(300.0)


def _offsets(report: str) -> dict[str, dict[str, int]]:
    """Where the last batch ended and began, by partition."""
    (source,) = json.loads(report)["sources"]
    (ends,) = source["endOffset"].values()
    starts = list((source["startOffset"] or {}).values())
    return {"offsets": ends, "before": starts[0] if starts else {}}


def main() -> None:
    job = ScaledJob(json.loads(sys.argv[1]))
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            reply = {"answer": getattr(job, order.pop("do"))(**order)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), flush=True)
    os._exit(0)  # the runner has ended


if __name__ == "__main__":
    main()
