"""The benchmark jobs by name: ``jobs.toml`` says what each is."""

from importlib.resources import files

from msgspec import Struct, structs, toml

from penstock.core.errors import unknown
from penstock.testbed.jobs import images, pixel_queries, state_size, traffic, ysb
from penstock.testbed.jobs.image_records import PACKAGES
from penstock.testbed.jobs.job import BenchmarkJob, DemoLoad, JobFacts, Pipeline
from penstock.testbed.jobs.nexmark_queries import NexmarkQuery
from penstock.testbed.jobs.wordcount import word_counts


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
