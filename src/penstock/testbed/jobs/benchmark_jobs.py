"""The benchmark jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import unknown
from penstock.testbed.jobs import nexmark_queries
from penstock.testbed.jobs.wordcount import word_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Pace = Callable[["DataFrame"], "DataFrame"]
OutputMode = Literal["append", "update"]


@dataclass(frozen=True, slots=True)
class BenchmarkJob:
    """A job: what it computes, what it reads, and how a stream of it gives its results."""

    name: str
    pipeline: Callable[[DataFrame], DataFrame]
    stream: Literal["nexmark", "words"]
    output_mode: OutputMode

    def over(self, source: DataFrame, pace: Pace | None = None) -> DataFrame:
        """The result for a source; `pace` makes each of its records cost more."""
        return self.pipeline(source if pace is None else pace(source))

    def start(
        self,
        spark: SparkSession,
        *,
        bootstrap: str,
        topic: str,
        checkpoint: str,
        trigger_s: float,
        pace: Pace | None = None,
    ) -> StreamingQuery:
        """Start it on a topic, from its first record on; results are counted and forgotten."""
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        writer = self.over(source, pace).writeStream.format("noop").outputMode(self.output_mode)
        writer = writer.queryName(self.name).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()


JOBS: dict[str, BenchmarkJob] = {
    job.name: job
    for job in (
        BenchmarkJob("q1", nexmark_queries.currency_conversion, "nexmark", "append"),
        BenchmarkJob("q3", nexmark_queries.local_item_suggestion, "nexmark", "append"),
        BenchmarkJob("q11", nexmark_queries.user_sessions, "nexmark", "append"),
        BenchmarkJob("wordcount", word_counts, "words", "update"),
    )
}


def find_job(name: str) -> BenchmarkJob:
    """The job of that name.

    >>> find_job("wordcont")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: unknown job 'wordcont': did you mean 'wordcount'? ...
    """
    if name not in JOBS:
        raise unknown("job", name, JOBS)
    return JOBS[name]
