"""What a benchmark job is, and all of them by name; ``jobs.toml`` says what each does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs, toml

from penstock.core.errors import unknown
from penstock.testbed.jobs import images, pixel_queries, state_size, traffic, ysb
from penstock.testbed.jobs.image_records import PACKAGES, require_packages
from penstock.testbed.jobs.nexmark_queries import NexmarkQuery
from penstock.testbed.jobs.wordcount import word_counts

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
    #: Its tasks take one executor over 2 s a batch, however few records there are.
    heavy: bool = False
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


class JobEntry(JobFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of the file; those without a query are written in Python."""

    query: NexmarkQuery | None = None


class JobsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is."""

    jobs: dict[str, JobEntry]
    not_expressible: dict[str, str]


PIPELINES: dict[str, Pipeline] = {
    "wordcount": word_counts,
    "ysb": ysb.views_per_campaign,
    "traffic": traffic.speeds_per_area,
    "state-size": state_size.last_string_per_key,
    "images-recognise": images.recognise_photos,
    "images-store": images.store_photos,
    "images-cells": images.count_cells,
    "pixel-queries": pixel_queries.answer_pixel_queries,
}
IMAGE_JOBS = ("images-recognise", "images-store", "images-cells", "pixel-queries")
#: Smaller Arrow batches: a photo takes 40 kB, and a worker holds a batch in memory.
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "256"}
IMAGE_LOAD = DemoLoad(low_rps=8.0, peak_rps=60.0, pace_s=0.04)

_FILE = toml.decode(
    files("penstock.testbed.jobs").joinpath("jobs.toml").read_bytes(), type=JobsFile
)
#: Nexmark queries that Structured Streaming cannot express, and why.
NOT_EXPRESSIBLE = _FILE.not_expressible


def _job(name: str, entry: JobEntry) -> BenchmarkJob:
    facts = structs.asdict(entry)
    pipeline = facts.pop("query") or PIPELINES[name]
    if name in IMAGE_JOBS:
        facts |= {"settings": SMALL_BATCHES, "packages": tuple(PACKAGES), "demo": IMAGE_LOAD}
    elif name == "state-size":
        facts["settings"] = state_size.state_settings(changelog=True)
    return BenchmarkJob(name=name, pipeline=pipeline, **facts)


JOBS = {name: _job(name, entry) for name, entry in _FILE.jobs.items()}


def find_job(name: str) -> BenchmarkJob:
    """The job of that name.

    >>> find_job("wordcont")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: unknown job 'wordcont': did you mean 'wordcount'? ...
    """
    if name not in JOBS:
        raise unknown("job", name, JOBS)
    return JOBS[name]
