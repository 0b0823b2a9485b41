"""What a benchmark job is: its pipeline, the streams it reads, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from penstock.testbed.jobs.image_records import require_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Pace = Callable[["DataFrame"], "DataFrame"]
Pipeline = Callable[..., "DataFrame"]
OutputMode = Literal["append", "update"]


class DemoLoad(Struct, frozen=True):
    """The load of a job in the demo, all its streams together, and how long a record waits.

    A record that computes for milliseconds waits several times as long: what up to eight executors
    compute at the peak has to fit on two cores.
    """

    low_rps: float = 400.0
    #: About five executors' worth: what a batch costs besides its records comes on top.
    peak_rps: float = 3400.0
    pace_s: float = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkJob:
    """A job: what it computes, what it reads, and how a stream of it gives its results.

    Parameters
    ----------
    name, summary, origin
        What it is called, what it computes in a line, and where it comes from.
    dataflow
        Its operators, in a line or several.
    state
        What it remembers between batches.
    pipeline
        From one DataFrame per stream, with records in `value`, to the results.
    streams
        Each is a topic of its own. `penstock.testbed.jobs.streams` has them by name.
    reads
        How often Spark reads each record: a join of a stream with itself reads it twice.
    settings
        Settings of Spark without which it does not work.
    packages
        Modules that its Python workers import.
    compute_s
        What a record costs an executor in processor time, if that is not negligible.
    partitions
        Of each topic.
    """

    name: str
    summary: str
    origin: str
    dataflow: str
    pipeline: Pipeline
    streams: tuple[str, ...]
    output_mode: OutputMode = "append"
    state: str = "none"
    reads: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    compute_s: float = 0.0
    #: Twelve tasks share out evenly over 1, 2, 3, 4 and 6 executors.
    partitions: int = 12
    demo: DemoLoad = field(default_factory=DemoLoad)

    def check_packages(self) -> None:
        """Refuse to start without the packages that it needs."""
        require_packages(f"the job '{self.name}'", self.packages)

    def over(self, *sources: DataFrame, pace: Pace | None = None) -> DataFrame:
        """The result for a source per stream; `pace` makes each of their records cost more."""
        return self.pipeline(*(sources if pace is None else map(pace, sources)))

    def start(
        self,
        spark: SparkSession,
        *,
        bootstrap: str,
        topics: Sequence[str],
        checkpoint: str,
        trigger_s: float,
        pace: Pace | None = None,
    ) -> StreamingQuery:
        """Start it on a topic per stream, from the first records on; results are forgotten."""
        self.check_packages()
        for key, value in self.settings.items():
            spark.conf.set(key, value)
        sources = [
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            for topic in topics
        ]
        results = self.over(*sources, pace=pace)
        writer = results.writeStream.format("noop").outputMode(self.output_mode)
        writer = writer.queryName(self.name).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()
