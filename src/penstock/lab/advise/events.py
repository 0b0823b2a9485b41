"""The events of a log that advice needs, gathered while its lines go by.

Ends of tasks, most of a log, are skipped: a stage sums up its tasks when it is complete. Of batches
and stages only those of the last `last_s` seconds are kept, whatever the length of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from sys import intern
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field, structs

from penstock.core.errors import PenstockError
from penstock.core.files import UNREADABLE
from penstock.core.model import Batch, BatchStage
from penstock.core.phrases import counted
from penstock.lab.advise.logs import PLAIN, LogFile
from penstock.spark.sensor.progress import parse_progress, partition_offsets

_PROGRESS = b"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
_KINDS = {b"SparkListener" + name for name in (
    b"ApplicationStart", b"EnvironmentUpdate", b"ExecutorAdded", b"ExecutorRemoved",
    b"StageSubmitted", b"StageCompleted",
)} | {_PROGRESS}  # fmt: skip
_UNREADABLE = (
    *UNREADABLE, PenstockError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError
)  # fmt: skip
#: What tasks take, to run and to load code: milliseconds, and nanoseconds of a processor.
_WORK = ("internal.metrics.executorRunTime", "internal.metrics.executorDeserializeTime")
_CPU = ("internal.metrics.executorCpuTime", "internal.metrics.executorDeserializeCpuTime")


class ExecutorChange(Struct, frozen=True, gc=False):
    """An executor that came, with its cores and when it was asked for, or went, with none."""

    at_s: float
    id: str
    cores: int = 0
    asked_at_s: float | None = None


class QueryReport(Struct, frozen=True, gc=False):
    """What a query said at a trigger. Sums of offsets are ``None`` where a source has others."""

    query: str
    run: str
    at_s: float
    batch: Batch | None
    taken: float | None
    arrived: float | None
    source: str = ""


class StageRun(Struct, frozen=True, gc=False):
    """A stage of a batch that ended, and the core-seconds of its tasks."""

    run: str
    batch: int
    tasks: int
    work_s: float
    began_at_s: float
    ended_at_s: float
    cpu_s: float = 0.0


class LogPart(Struct):
    """What one file of a log says. `owners` are run and batch of stages that have not ended.

    The first batch and its stages are kept, however long ago they were.
    """

    file: LogFile
    application: str = ""
    name: str = ""
    conf: dict[str, str] = {}
    executors: list[ExecutorChange] = []
    reports: deque[QueryReport] = field(default_factory=deque)
    stages: deque[StageRun] = field(default_factory=deque)
    first: QueryReport | None = None
    first_stages: list[StageRun] = []
    owners: dict[int, tuple[str, int]] = {}
    problem: str = ""


#: What is known of a log: the files that it has, and what each says that could be read.
Found: TypeAlias = LogPart | LogFile


def gather(file: LogFile, lines: Iterable[bytes], last_s: float) -> LogPart:
    """What the lines of a file say.

    Lines that cannot be read are counted in its `problem`. The last one of a log that is still
    written may be torn.
    """
    part, broken, line, name = LogPart(file), 0, b"", b""
    try:
        for line in lines:
            if (name := line[len(PLAIN) : line.find(b'"', len(PLAIN))]) in _KINDS:
                try:
                    _add(part, name, msgspec.json.decode(line))
                except _UNREADABLE:
                    broken += 1
                forget(part, (part.reports[-1].at_s if part.reports else 0.0) - last_s)
    except (OSError, ValueError, PenstockError) as error:  # what codecs raise
        part.problem = "" if file.is_growing else str(error)
        return part
    is_torn = not line.endswith(b"}")
    if is_torn and name not in _KINDS:
        broken += 1
    if broken > (is_torn and file.is_growing):
        part.problem = f"has {counted(broken, 'line')} that cannot be read"
    return part


def merged(found: list[Found], more: list[Found], last_s: float) -> list[Found]:
    """What is known of one log, without what is older than the last seconds of all of it."""
    both = found + more
    parts = [one for one in both if isinstance(one, LogPart)]
    newest_s = max((part.reports[-1].at_s for part in parts if part.reports), default=0.0)
    for part in parts:
        forget(part, newest_s - last_s)
    return both


def forget(part: LogPart, since_s: float) -> None:
    """Drop the batches and stages of earlier times."""
    while part.reports and part.reports[0].at_s < since_s:
        part.reports.popleft()
    while part.stages and part.stages[0].ended_at_s < since_s:
        part.stages.popleft()


def _add(part: LogPart, name: bytes, event: dict[str, Any]) -> None:
    at_s = event.get("Timestamp", 0) / 1e3
    match name.removeprefix(b"SparkListener"):
        case b"ApplicationStart":
            part.application, part.name = event.get("App ID") or "", event["App Name"]
        case b"EnvironmentUpdate":
            part.conf = dict(event["Spark Properties"])
        case b"ExecutorAdded":
            info = event["Executor Info"]
            asked_at_s = info["Request Time"] / 1e3 if "Request Time" in info else None
            came = ExecutorChange(at_s, event["Executor ID"], info["Total Cores"], asked_at_s)
            part.executors.append(came)
        case b"ExecutorRemoved":
            part.executors.append(ExecutorChange(at_s, event["Executor ID"]))
        case b"StageSubmitted":
            said = event.get("Properties") or {}
            if batch := said.get("streaming.sql.batchId"):
                owner = said["spark.jobGroup.id"], int(batch)
                part.owners[event["Stage Info"]["Stage ID"]] = owner
        case b"StageCompleted":
            _add_stage(part, event["Stage Info"])
        case _:
            part.reports.append(report := _report(event["progress"]))
            if part.first is None and report.batch:
                part.first = report


def _add_stage(part: LogPart, stage: dict[str, Any]) -> None:
    sums = [float(one["Value"]) for one in stage["Accumulables"] if one.get("Name") in _WORK]
    cpu_ns = [float(one["Value"]) for one in stage["Accumulables"] if one.get("Name") in _CPU]
    owner, begin_ms = part.owners.pop(stage["Stage ID"], None), stage.get("Submission Time")
    if owner and sums and begin_ms and stage["Number of Tasks"]:
        times_s = begin_ms / 1e3, max(begin_ms, stage["Completion Time"]) / 1e3
        taken = stage["Number of Tasks"], sum(sums) / 1e3, *times_s, sum(cpu_ns) / 1e9
        part.stages.append(ran := StageRun(*owner, *taken))
        if owner == next(((one.run, one.batch) for one in part.first_stages), owner):
            part.first_stages.append(ran)


def _report(report: dict[str, Any]) -> QueryReport:
    report["observedMetrics"] = None  # rows, in a form of their own
    sources = report.get("sources") or []
    for source in sources:
        for key in ("startOffset", "endOffset", "latestOffset"):
            if str(text := source.get(key)).startswith("{"):  # the log has JSON as text here
                source[key] = msgspec.json.decode(str(text))

    def total(key: str) -> float | None:
        found = [partition_offsets(source.get(key)) for source in sources]
        return (
            float(sum(sum((one or {}).values()) for one in found)) if found and all(found) else None
        )

    progress = parse_progress(msgspec.json.encode(report))
    # Texts that every report repeats are kept once.
    names = intern(", ".join(str(source.get("description")) for source in sources))
    query, run = intern(report.get("id") or progress.run_id), intern(progress.run_id)
    sums = total("endOffset"), total("latestOffset")
    return QueryReport(query, run, progress.started_at_s, progress.batch, *sums, names)


def with_stages(batch: Batch, ran: Iterable[StageRun]) -> Batch:
    """The batch with its stages, in the order in which they began."""
    stages = []
    for stage in sorted(ran, key=lambda one: one.began_at_s):
        begin_s = round(max(0.0, stage.began_at_s - batch.started_at_s), 3)
        end_s = max(begin_s, round(stage.ended_at_s - batch.started_at_s, 3))
        stages.append(BatchStage(stage.tasks, stage.work_s, begin_s, end_s))
    return structs.replace(batch, stages=tuple(stages))
