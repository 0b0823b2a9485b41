"""Everything of a demo that is real but the scaler: broker, cluster, query and load.

Nothing outlives this process, even if it is killed: the keeper of the testbed ends broker, cluster
and producer, and the driver's Java ends with its standard input.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import PenstockError
from penstock.testbed import Testbed, paced, wait_until
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import DemoPlan
from penstock.testbed.jobs.benchmark_jobs import find_job
from penstock.testbed.jobs.playback import Report, join_reports
from penstock.testbed.processes import Process, cause
from penstock.testbed.sessions import interrupt_once, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: After this many batches, the last of them within its trigger, the code is compiled.
WARM_UP_BATCHES = 3
FIRST_BATCH_TIMEOUT_S = 180.0
WARM_UP_TIMEOUT_S = 30.0
LEAD_S = 6  #: The load begins this long after its producer, at the latest.
END_TIMEOUT_S = 5.0  #: Until the driver's Java has ended by itself before it is killed.

Say = Callable[[str], None]


class DemoError(PenstockError):
    """Something real broke while the demo ran."""


@dataclass(frozen=True)
class DemoEnvironment:
    """A query whose load has begun; its fleet stays as it is until a scaler changes it."""

    plan: DemoPlan
    bed: Testbed
    spark: SparkSession
    query: StreamingQuery
    producer: Producer

    def is_over(self) -> bool:
        """Whether all of the load is out; an error if the job or the producer broke."""
        check_alive(self.query)
        return self.producer.ended()


@dataclass(frozen=True)
class Producer:
    """The processes that send the events, one for each stream; they end with the testbed."""

    processes: tuple[Process, ...]

    @classmethod
    def start(cls, bed: Testbed, plan: DemoPlan, name: str, *load: str) -> Producer:
        """Each stream gets that load."""
        argv = [sys.executable, "-m", "penstock.testbed.jobs.producer"]
        argv += ["--bootstrap", bed.bootstrap_servers, *load]
        started = []
        for stream, topic in plan.topics.items():
            own = name if len(plan.topics) == 1 else f"{name}-{stream}"
            started.append(bed.start_program(own, [*argv, "--topic", topic, "--stream", stream]))
        return cls(tuple(started))

    def ended(self) -> bool:
        codes = [process.exit_code() for process in self.processes]
        for process, code in zip(self.processes, codes, strict=True):
            if code:
                raise DemoError(f"the producer failed: {cause(process.log.read_text())}")
        return None not in codes

    def stop(self) -> None:
        for process in self.processes:
            process.stop()

    def report(self) -> Report | None:
        """What they sent, once all have ended by themselves: the line of JSON in each log."""
        lines = [process.log.read_bytes().splitlines() for process in self.processes]
        found = [[line for line in each if line.startswith(b"{")] for each in lines]
        if not all(found):
            return None
        return join_reports([msgspec.json.decode(each[-1], type=Report) for each in found])


@contextmanager
def demo_environment(
    plan: DemoPlan,
    say: Say,
    *,
    kafka_port: int | None = None,
    executors: int | None = None,
    settings: dict[str, str] | None = None,
    warmup_s: float = WARM_UP_TIMEOUT_S,
) -> Iterator[DemoEnvironment]:
    """Start everything, hand it over when the load begins, and end everything.

    The `settings` of Spark come on top of those of the testbed, whose fleet stands still by itself.
    The load begins `warmup_s` after the first batch even if batches are still slow.
    """
    with _run_directory(say) as directory, interrupt_once(), ExitStack() as stack:
        slots = sizes.MAX_EXECUTORS
        kind = "Spark" if plan.cluster == "standalone" else plan.cluster
        say(f"starting a Kafka broker and a {kind} cluster with {slots} slots ...")
        bed = Testbed(
            slots,
            directory,
            kafka_port=kafka_port,
            cluster=plan.cluster,
            nodes=plan.nodes,
            cpu_share=plan.cpu_share,
            say=say,
        )
        stack.enter_context(bed)
        job = find_job(plan.job)
        for topic in plan.topics.values():
            bed.create_topic(topic, plan.partitions)
        executors = plan.start_executors if executors is None else executors
        fleet = "one executor" if executors == 1 else f"{executors} executors"
        say(f"starting the driver on {bed.master_url}, with {fleet} ...")
        stack.callback(_end_driver)
        spark = _session(bed, executors, {**job.settings, **(settings or {})})
        say(f"starting the job {plan.job}; its first batches compile code ...")
        streams = len(plan.topics)
        low = f"constant:rate={plan.warm_up_rps / streams:g}"
        warm_up = Producer.start(bed, plan, "warm-up", "--workload", low, "--seconds", "86400")
        query = job.start(
            spark,
            bootstrap=bed.bootstrap_servers,
            topics=list(plan.topics.values()),
            checkpoint=str(directory / "checkpoint"),
            trigger_s=plan.trigger_s,
            pace=lambda source: paced_source(source, plan),
        )
        _warm_up(query, warm_up, plan, say, warmup_s)
        rates = directory / "rates.json"
        load = [plan.low_rps] * LEAD_S + plan.rates_rps()
        rates.write_text(json.dumps([each / streams for each in load]))
        producer = Producer.start(bed, plan, "producer", "--rates", str(rates))
        warm_up.stop()
        _settle(query, plan)
        yield DemoEnvironment(plan, bed, spark, query, producer)


@contextmanager
def _run_directory(say: Say) -> Iterator[Path]:
    """A temporary directory, kept if something breaks after the first part has logged."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    keep = False
    try:
        yield directory
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:
        keep = (directory / "logs").exists()
        if keep:
            say(f"the logs of all parts are in {directory / 'logs'}")
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _session(bed: Testbed, executors: int, more: dict[str, str]) -> SparkSession:
    from pyspark import SparkConf

    # Java, and PySpark with it, inherits our environment.
    for name in os.environ.keys() - bed.driver_environment.keys():
        del os.environ[name]
    os.environ.update(bed.driver_environment)
    settings = {
        "spark.app.name": "penstock-demo",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": str(sizes.STATE_PARTITIONS),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.log.level": "ERROR",
    }
    conf = SparkConf(loadDefaults=False)
    settings = bed.spark_conf(initial_executors=executors) | settings | more
    conf.setAll(list(settings.items()))
    return start_session(conf, bed.run_directory / "logs" / "driver.log")


def paced_source(source: DataFrame, plan: DemoPlan) -> DataFrame:
    """Records of Kafka that wait as the plan says; one of several waits for all of them."""
    from pyspark.sql import functions as f

    if plan.pace_s == 0.0:
        return source
    waits = f.col("offset") % plan.waiting_together == 0
    return paced(source, f.when(waits, plan.waiting_together * plan.pace_s).otherwise(0.0))


def _warm_up(
    query: StreamingQuery, producer: Producer, plan: DemoPlan, say: Say, patience_s: float
) -> None:
    """Wait for the first batches: a policy that learned from these would be misled."""

    def last_batch() -> tuple[int, float]:
        check_alive(query)
        producer.ended()
        progress: Any = query.lastProgress
        if progress is None:
            return 0, 0.0
        return 1 + int(progress["batchId"]), progress["durationMs"]["triggerExecution"] / 1e3

    def warm() -> bool:
        batches, duration_s = last_batch()
        return batches >= WARM_UP_BATCHES and duration_s <= plan.trigger_s

    limit_s = FIRST_BATCH_TIMEOUT_S
    try:
        wait_until(lambda: last_batch()[0], limit_s, "", every_s=0.25)
    except TimeoutError:
        late = f"the query did not do its first batch in {limit_s:g} s: this machine is too busy"
        raise DemoError(late) from None
    try:
        wait_until(warm, patience_s, "", every_s=0.25)
    except TimeoutError:
        say(
            f"this machine is busy: a batch takes {last_batch()[1]:.1f} s at "
            f"{plan.warm_up_rps:g} records/s; expect a larger fleet and longer delays"
        )


def _settle(query: StreamingQuery, plan: DemoPlan) -> None:
    """Wait for a batch of the usual size, so that the first that is seen is one of many."""

    def usual() -> bool:
        progress: Any = query.lastProgress
        rows = 0 if progress is None else int(progress["numInputRows"])
        return rows >= 0.75 * plan.low_rps * plan.trigger_s

    with suppress(TimeoutError):  # then the load begins all the same
        wait_until(usual, LEAD_S, "", every_s=0.25)


def check_alive(query: StreamingQuery) -> None:
    if not query.isActive:
        error = query.exception()
        why = str(error).partition("\n")[0] if error is not None else "no reason given"
        raise DemoError(f"the query ended: {why}")


def _end_driver() -> None:
    """End the session and the Java process behind it, whatever state they are in."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        with suppress(Exception):  # it may be half started, or gone
            if (context := SparkContext._active_spark_context) is not None:
                context.stop()
        with suppress(Exception):
            gateway.shutdown()
        if process.stdin is not None:
            process.stdin.close()
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None
