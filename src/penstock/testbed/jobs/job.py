"""What a benchmark job is: its pipeline, the streams it reads, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The load of a job in the demo, all its streams together, and how long a record waits."""

    low_rps: float = 400.0
    #: About five executors' worth: what a batch costs besides its records comes on top.
    peak_rps: float = 3400.0
    pace_s: float = 0.001  #: Longer where records compute: eight executors fit on two cores.


class JobFacts(Struct, frozen=True, kw_only=True):
    """What is known of a job besides its pipeline."""

    summary: str  #: What it computes, in a line.
    origin: str
    dataflow: str  #: Its operators, in a line or several.
    notes: str = ""  #: Where it differs from its origin.
    #: Each is a topic of its own. `penstock.testbed.jobs.streams` has them by name.
    streams: tuple[str, ...] = ("nexmark",)
    output_mode: OutputMode = "append"
    state: str = "none"  #: What it remembers between batches.
    #: How often Spark reads each record: a join of a stream with itself reads it twice.
    reads: int = 1
    settings: Mapping[str, str] = {}  #: Settings of Spark without which it does not work.
    packages: tuple[str, ...] = ()  #: Modules that its Python workers import.
    #: What a record costs an executor in processor time, if that is not negligible.
    compute_s: float = 0.0
    #: Of each topic. Twelve tasks share out evenly over 1, 2, 3, 4 and 6 executors.
    partitions: int = 12
    demo: DemoLoad = DemoLoad()


class BenchmarkJob(JobFacts, frozen=True, kw_only=True):
    """A job: `pipeline` goes from one DataFrame per stream, with records in `value`, to results."""

    name: str
    pipeline: Pipeline

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
