"""Starts one of the jobs on Spark, from Kafka to a sink::

    python -m penstock.testbed.jobs.run --job q11 --bootstrap HOST:PORT --topic events \\
        --checkpoint DIR --conf spark.master=local[2]

It runs until it fails, is told to stop (SIGTERM, SIGINT), or, with `--available-now`, has read
what was there.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from penstock.core.errors import ConfigError, PenstockError
from penstock.testbed.jobs.benchmark_jobs import JOBS, find_job
from penstock.testbed.jobs.options import pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Sink = Literal["noop", "console", "parquet", "kafka"]
Pace = Callable[["DataFrame"], "DataFrame"]
SINKS: tuple[Sink, ...] = ("noop", "console", "parquet", "kafka")


class StreamingJob(Struct, frozen=True, kw_only=True):
    """A job, where it reads and where it writes.

    Parameters
    ----------
    job
        q1, q3, q11 or wordcount.
    bootstrap, topic
        What it reads, from the first record on.
    checkpoint
        A directory of its own; a job that finds one goes on where it stopped.
    sink, output
        ``noop`` counts and forgets; ``console`` prints; ``parquet`` writes into the directory
        `output`, ``kafka`` to the topic `output` of the same brokers.
    trigger_s
        Seconds between micro-batches; 0 starts the next as soon as one is done.
    available_now
        Read what is there, then end.
    kafka_options
        Further options of Spark's Kafka source, such as maxOffsetsPerTrigger.
    """

    job: str
    bootstrap: str
    topic: str
    checkpoint: str
    sink: Sink = "noop"
    output: str | None = None
    trigger_s: float = 1.0
    available_now: bool = False
    kafka_options: dict[str, str] = {}

    def __post_init__(self) -> None:
        job = find_job(self.job)
        if self.sink in ("parquet", "kafka") and not self.output:
            what = "directory" if self.sink == "parquet" else "topic"
            raise ConfigError(f"the sink {self.sink} needs an output: which {what}?")
        if self.sink == "parquet" and job.output_mode != "append":
            raise ConfigError(
                f"{self.job} changes results that it gave before, and files cannot be changed: "
                "choose the sink kafka, console or noop"
            )
        if self.trigger_s < 0:
            raise ConfigError(f"the trigger must be 0 s or more, not {self.trigger_s:g}")

    def start(self, spark: SparkSession, pace: Pace | None = None) -> StreamingQuery:
        """The running query. `pace` makes each record of the source cost something."""
        job = find_job(self.job)
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .options(**self.kafka_options)
            .load()
        )
        writer = self._writer(job.over(source, pace)).outputMode(job.output_mode)
        writer = writer.queryName(job.name).option("checkpointLocation", self.checkpoint)
        if self.available_now:
            return writer.trigger(availableNow=True).start()
        milliseconds = round(self.trigger_s * 1000)
        return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()

    def _writer(self, result: DataFrame) -> DataStreamWriter:
        if self.sink == "kafka":
            values = result.selectExpr("to_json(struct(*)) AS value")
            return (
                values.writeStream.format("kafka")
                .option("kafka.bootstrap.servers", self.bootstrap)
                .option("topic", self.output or "")
            )
        writer = result.writeStream.format(self.sink)
        return writer.option("path", self.output or "") if self.sink == "parquet" else writer


def run(job: StreamingJob, conf: Mapping[str, str], pace: Pace | None = None) -> None:
    """Run the job in this process until it ends, or a signal ends it in order."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("a job needs PySpark: install penstock[spark]") from None

    name = f"penstock-{job.job}"
    spark = SparkSession.builder.appName(name).config(map=dict(conf)).getOrCreate()
    signals: list[int] = []
    # Not sooner: a new session puts a handler of its own in the place of ours.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: signals.append(number))
    try:
        query = job.start(spark, pace)
        # Asked each second, because a wait inside the JVM would not hear a signal.
        while not query.awaitTermination(1):
            if signals:
                query.stop()
    finally:
        spark.stop()


def paced_by(cost_s: float) -> Pace | None:
    """The pace of a machine that stands for a cluster, or none."""
    if cost_s == 0.0:
        return None
    from penstock.testbed.pace import paced

    return lambda source: paced(source, cost_s)


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    conf, pace_s = dict(options.pop("conf")), options.pop("pace_s")
    options["kafka_options"] = dict(options["kafka_options"])
    try:
        run(StreamingJob(**options), conf, paced_by(pace_s))
    except PenstockError as error:
        return _fail(str(error), 2)
    except _spark_errors() as error:
        return _fail(str(error).partition("\n")[0], 1)
    return 0


def _spark_errors() -> type[BaseException]:
    from pyspark.errors import PySparkException

    return PySparkException


def _fail(sentence: str, code: int) -> int:
    print(f"job: {sentence}", file=sys.stderr)  # noqa: T201
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testbed.jobs.run",
        description="Runs a job on Spark, from Kafka to a sink.",
    )
    add = parser.add_argument
    add("--job", required=True, help=", ".join(JOBS))
    add("--bootstrap", required=True, help="broker addresses, host:port,...")
    add("--topic", required=True, help="what to read")
    add("--checkpoint", required=True, metavar="DIR", help="where the job keeps how far it is")
    add("--sink", default="noop", choices=SINKS, help="where results go (default noop)")
    add("--output", help="the directory of parquet, or the topic of kafka")
    add("--trigger-s", type=float, default=1.0, help="seconds between micro-batches (default 1)")
    add("--available-now", action="store_true", help="read what is there, then end")
    add("--pace-s", type=float, default=0.0, help="make each record wait (default 0: it does not)")
    add(
        "--kafka-option",
        dest="kafka_options",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the source, such as maxOffsetsPerTrigger=10000",
    )
    add(
        "--conf",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.master=local[2]",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
