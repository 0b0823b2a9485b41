"""Event logs as one Spark job: each file gives the few facts that advice needs, which are grouped
by application. Spark repeats the tasks of an executor that is lost.

Files that Python can open itself are read as a stream where they are. All others Spark reads, as a
whole and still compressed.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.core.errors import ConfigError
from penstock.lab.advise.advice import Advice, Answer, Question, advise_on
from penstock.lab.advise.events import Found, LogPart, gather, merged
from penstock.lab.advise.logs import LogFile, lines, log_files
from penstock.lab.experiments.on_spark import packed

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: Whole files that Spark reads have to fit into a value of Java.
MOST_READ_BYTES = 2**31 - 2**20
#: More tasks than this share files and applications: each has to fetch from each.
MOST_TASKS = 500
SESSION_SETTINGS = {
    "spark.task.maxFailures": "8",
    # A file that cannot be read is missed in the result, and named there.
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
}
_LOCAL = "file:"
#: What executors do not need.
_NOT_SENT = ("cli", "live_comparison", "observe", "studies", "testbed")


def find_logs(spark: SparkSession, places: Sequence[str]) -> list[LogFile]:
    """The files of all logs at these places: files, directories, globs, any that Spark reads."""
    try:
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        frame = reader.load(list(places))
        stored_bytes = {_plain(row[0]): row[1] for row in frame.select("path", "length").collect()}
        paths = [_plain(unquote(url)) for url in frame.inputFiles()]  # empty ones are only here
    except Exception as error:
        from penstock.testbed.sessions import spark_cause  # does not travel to the executors

        cause = spark_cause(error)
        if missing := re.search(r"Path does not exist: (\S+)\.", cause):
            raise ConfigError(f"there is no {missing[1].removeprefix('file:')}") from error
        raise ConfigError(f"cannot look for event logs: {cause}") from error
    if found := log_files((path, stored_bytes.get(path, 0)) for path in paths):
        return found
    raise ConfigError(f"there is no event log at {', '.join(places)}")


def _plain(path: str) -> str:
    """The one of two ways in which Spark writes local files: ``file:/a`` and ``file:///a``."""
    return re.sub(r"^file:/+", "file:/", path)


def tasks_done(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the jobs that run now are done, and of how many."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [job for one in tracker.getActiveJobsIds() if (job := tracker.getJobInfo(one))]
    ids = (one for job in jobs for one in job.stageIds)
    stages = [stage for one in ids if (stage := tracker.getStageInfo(one))]
    return sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)


def answers(spark: SparkSession, files: Sequence[LogFile], question: Question) -> RDD[Answer]:
    """An answer for each application, computed once."""
    from pyspark import StorageLevel

    context, last_s = spark.sparkContext, question.last_s
    directory = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    context.addPyFile(str(packed(Path(directory), _NOT_SENT)))
    here = [one for one in files if one.path.startswith(_LOCAL)]
    tasks = max(1, min(len(here), MOST_TASKS))
    dealt = [one for first in range(tasks) for one in here[first::tasks]]  # large and small
    parts = context.parallelize(dealt, tasks).map(partial(read_here, last_s))
    far = {one.path: one for one in files if not one.path.startswith(_LOCAL)}
    if readable := [one.path for one in far.values() if one.stored_bytes <= MOST_READ_BYTES]:
        rows = spark.read.format("binaryFile").load(readable).select("path", "content").rdd
        gathered = rows.map(lambda row: gather(far[row[0]], lines(BytesIO(row[1])), last_s))
        parts = parts.union(gathered)

    def named(part: LogPart) -> tuple[str, list[Found]]:
        return part.file.log, [part]

    listed: list[tuple[str, list[Found]]] = [(one.log, [one]) for one in files]
    expected = context.parallelize(listed, 1)
    logs = len({one.log for one in files})
    merge = partial(merged, last_s=last_s)
    grouped = expected.union(parts.map(named)).reduceByKey(merge, min(logs, MOST_TASKS))
    return grouped.map(lambda item: answer(question, *item)).persist(StorageLevel.DISK_ONLY)


def answer(question: Question, log: str, found: Iterable[Found]) -> Answer:
    """The answer for one application; a log that breaks us must not take the others with it."""
    try:
        return advise_on(question, log, found)
    except Exception as error:
        name, why = log.rpartition("/")[2], f"of an error: {error!r}"
        problem = f"{log} cannot be judged because {why}"
        return Answer([Advice(application=name, log=log, cannot_say=why, problem=problem)])


def read_here(last_s: float, file: LogFile) -> LogPart:
    """What a file says that Python can open."""
    try:
        with Path(file.path.removeprefix(_LOCAL)).open("rb") as stream:
            return gather(file, lines(stream), last_s)
    except OSError as error:
        return LogPart(file, problem=f"cannot be opened: {error.strerror}")
