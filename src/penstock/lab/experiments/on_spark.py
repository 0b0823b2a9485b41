"""A sweep or a study as Spark jobs, one task per run.

Penstock's code and the traces are sent with the job, so an executor needs Python, NumPy and
msgspec, and runs exactly what this machine would run. Spark repeats the tasks of an executor that
is lost; rows come back through an accumulator, each as soon as its task has succeeded.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import py_compile
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError, PenstockError
from penstock.lab.experiments import sweep
from penstock.lab.experiments.process_pool import ItemRunner, Progress
from penstock.lab.experiments.tournament import Cell, Row

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

#: How often a task may fail before the job does: executors come and go on a cluster.
SESSION_SETTINGS = {"spark.task.maxFailures": "8"}
POLL_EVERY_S = 0.2
POLLS_BEFORE_WARNING = 150  #: After as many polls of a cluster that does nothing, say so.
NO_ROOM = "no executor has started a run: has the cluster room for one?"

#: What a task sends: the position of its item, and its result or the sentence that refuses it.
Sent = tuple[int, Any]


def on_spark(session: SparkSession) -> sweep.CellRunner:
    """Runs cells on the cluster of a session."""
    _send_code(session, sweep.NO_INFLUENCE)
    context = session.sparkContext

    def run(work: Callable[[Cell], Row], cells: Sequence[Cell], on_row: sweep.OnRow) -> None:
        traces = context.broadcast(read_traces(cells))

        def play(cell: Cell) -> Row:
            row = work(localized(cell, traces.value))
            return msgspec.structs.replace(row, workload=cell.scenario.workload)

        _run_tasks(context, play, cells, on_row)

    return run


def items_on_spark(session: SparkSession) -> ItemRunner:
    """Runs the items of a study on the cluster of a session, results in their order."""
    _send_code(session, [name for name in sweep.NO_INFLUENCE if name != "studies"])

    def run(work: Callable[[Any], Any], items: Sequence[Any], progress: Progress) -> list[Any]:
        results: dict[int, Any] = {}

        def note(position: int, result: Any) -> None:
            results[position] = result
            progress(len(results))

        _run_tasks(session.sparkContext, work, items, note)
        return [results[position] for position in range(len(items))]

    return run


def _send_code(session: SparkSession, without: Sequence[str]) -> None:
    """Every executor of the session fetches the code, also those that come later for other jobs:
    it stays until this process ends."""
    directory = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    session.sparkContext.addPyFile(str(packed(Path(directory), without)))


def _run_tasks(
    context: SparkContext,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    on_result: Callable[[int, Any], None],
) -> None:
    """One task per item; `on_result` gets each result as soon as its task has succeeded."""
    sent = context.accumulator([], _list_accumulator())
    tasks = context.parallelize(list(enumerate(items)), len(items))
    received = 0
    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(tasks.foreach, lambda item: sent.add([_encode(work, *item)]))
        try:
            for poll in count(1):
                running = wait([job], POLL_EVERY_S).not_done
                received = _hand_over(sent.value, received, on_result)
                if not running:
                    break
                if poll == POLLS_BEFORE_WARNING and received == 0 and not _is_busy(context):
                    warnings.warn(NO_ROOM, stacklevel=2)
            job.result()
        except PenstockError:
            raise
        except Exception as error:
            from penstock.testbed.sessions import spark_cause  # does not travel to the executors

            done = f"the sweep ended on Spark after {received} of {len(items)} runs"
            raise PenstockError(f"{done}: {spark_cause(error)}") from error
        finally:
            # The thread is waited for, so whatever ends this early has to end the job too.
            with suppress(Exception):
                context.cancelAllJobs()


def _is_busy(context: SparkContext) -> bool:
    tracker = context.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def _hand_over(sent: Sequence[Sent], received: int, on_result: Callable[[int, Any], None]) -> int:
    for position, result in sent[received:]:
        received += 1
        if isinstance(result, str):
            raise ConfigError(result)
        on_result(position, result)
    return received


def _encode(work: Callable[[Any], Any], position: int, item: Any) -> Sent:
    """Bad input is bad however often it is tried: the sentence is sent and not raised."""
    try:
        return position, work(item)
    except PenstockError as error:
        return position, str(error)


def _list_accumulator() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class ListAccumulator(AccumulatorParam[list[Sent]]):
        def zero(self, value: list[Sent]) -> list[Sent]:
            return []

        def addInPlace(self, value1: list[Sent], value2: list[Sent]) -> list[Sent]:  # noqa: N802
            value1.extend(value2)
            return value1

    return ListAccumulator()


def packed(directory: Path, without: Sequence[str] = sweep.NO_INFLUENCE) -> Path:
    """Penstock as an archive that Python imports from, compiled so that it starts quickly."""
    path = directory / f"{directory.name}.zip"  # a session refuses two of one name
    with zipfile.ZipFile(path, "w") as archive:
        for within, source in sweep.influential_files(without):
            archive.write(source, within)
            if source.suffix != ".py":
                continue
            compiled, mode = directory / "compiled.pyc", PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(
                str(source), str(compiled), str(within), doraise=True, invalidation_mode=mode
            )
            archive.write(compiled, within.with_suffix(".pyc"))
    return path


def read_traces(cells: Sequence[Cell]) -> dict[str, bytes]:
    """The files that the loads of the cells are read from."""
    workloads = dict.fromkeys(cell.scenario.workload for cell in cells)
    return {file: Path(file).read_bytes() for load in workloads for file in sweep.trace_files(load)}


def localized(cell: Cell, traces: dict[str, bytes]) -> Cell:
    """The cell with each of its traces where this machine has it."""
    text = cell.scenario.workload
    if not (files := sweep.trace_files(text)):
        return cell
    places = {file: _placed(traces[file]) for file in files}
    for file, place in places.items():
        for before in ("trace:", "file="):
            text = text.replace(f"{before}{file}", f"{before}{place}")
    if set(sweep.trace_files(text)) != set(places.values()):
        raise ConfigError(
            f"the traces of '{cell.scenario.workload}' cannot be sent to a cluster: "
            "write each as trace:FILE, with no name that begins with another"
        )
    return msgspec.structs.replace(cell, scenario=replace(cell.scenario, workload=text))


def _placed(content: bytes) -> str:
    path = Path(tempfile.gettempdir(), f"penstock-{hashlib.sha256(content).hexdigest()[:24]}.csv")
    if not path.exists() or path.read_bytes() != content:
        partial = path.with_suffix(f".{os.getpid()}")
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:  # never through a link: others may write here
            file.write(content)
        partial.replace(path)
    return str(path)


def frame(spark: SparkSession, rows: Sequence[Struct], kind: type[Struct] = Row) -> DataFrame:
    kinds = {str: "string", int: "bigint", float: "double"}
    schema = ", ".join(f"{name} {kinds[kind]}" for name, kind in sweep.columns(kind).items())
    return spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], schema)


def exists(spark: SparkSession, place: str) -> bool:
    """Whether something is at a place that Spark can read, e.g. s3a://bucket/results."""
    from penstock.spark.internals import JVM_ERRORS, Driver
    from penstock.testbed.sessions import spark_cause

    try:
        return Driver(spark).exists(place)
    except JVM_ERRORS as error:
        raise ConfigError(f"Spark cannot look at {place}: {spark_cause(error)}") from error
