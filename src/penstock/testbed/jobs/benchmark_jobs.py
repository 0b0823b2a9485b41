"""The benchmark jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import unknown
from penstock.testbed.jobs import nexmark_queries
from penstock.testbed.jobs.wordcount import word_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "update"]


@dataclass(frozen=True, slots=True)
class BenchmarkJob:
    """A job: what it computes, what it reads, and how a stream of it gives its results."""

    name: str
    pipeline: Callable[[DataFrame], DataFrame]
    stream: Literal["nexmark", "words"]
    output_mode: OutputMode

    def over(
        self, source: DataFrame, pace: Callable[[DataFrame], DataFrame] | None = None
    ) -> DataFrame:
        """The result for a source, with what `pace` makes each of its records cost.

        Without a pace, records cost what the computation costs.
        """
        return self.pipeline(source if pace is None else pace(source))


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
