"""The report of a query after each micro-batch: ``StreamingQueryProgress``, parsed.

What Spark writes for an unknown value (NaN, -1, null, an empty text, a missing field) becomes
``None`` or zero here. Fields may come and go between versions 4.0 and 4.3.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.errors import SensorError
from penstock.core.model import Batch

Partition: TypeAlias = tuple[str, int]  #: A topic and the number of one of its partitions.

MOST_OBSERVED = 20  #: At most this many observed numbers of a batch are kept.

_decode = msgspec.json.Decoder().decode
_WHOLE = "triggerExecution"  #: A whole batch; the other entries of ``durationMs`` are its phases.
_RAN = "addBatch"  #: The phase that only a batch has that ran: an idle query reports the others.
_FILE_BYTES = "rocksdbSstFileSize"  #: State in files rather than in memory.


class SourceProgress(Struct, frozen=True):
    """The offsets of one source, as its kind writes them: number, object or text."""

    end_offset: Any = None
    latest_offset: Any = None
    input_records: int = 0

    @property
    def is_drained(self) -> bool:
        """False if the source says that there was more than the batch took."""
        return self.latest_offset is None or self.latest_offset == self.end_offset


class Progress(Struct, frozen=True):
    """One report of one query. `batch` is ``None`` if it was idle and committed nothing."""

    run_id: str
    batch_id: int
    started_at_s: float
    batch: Batch | None
    sources: tuple[SourceProgress, ...]
    state_bytes: float
    state_partitions: int  #: Tasks that hold its state.

    @property
    def tasks_at_once(self) -> int:
        """As many tasks as can run side by side, 0 if unknown; all sources are read at once."""
        offsets = [partition_offsets(source.end_offset) or () for source in self.sources]
        return max(self.state_partitions, sum(map(len, offsets)))


def parse_progress(text: str | bytes) -> Progress:
    """The report as JSON, the way ``progress.json`` gives it.

    >>> report = parse_progress('''{"runId": "r", "name": null, "batchId": 7,
    ...     "timestamp": "1970-01-01T00:01:00.500Z", "numInputRows": 400,
    ...     "inputRowsPerSecond": "NaN", "sources": [], "stateOperators": [],
    ...     "durationMs": {"addBatch": 900, "queryPlanning": 50, "triggerExecution": 1000}}''')
    >>> report.batch
    Batch(id=7, started_at_s=60.5, duration_s=1.0, input_records=400,
          phases={'addBatch': 0.9, 'queryPlanning': 0.05})
    """
    try:
        return _progress(_decode(text))
    except Exception as error:  # another version of Spark may write anything
        raise SensorError(f"cannot read the progress of a query: {error!r}") from error


def _progress(report: Mapping[str, Any]) -> Progress:
    started_at_s = parse_instant(report["timestamp"])
    sources = tuple(map(_source, report.get("sources") or ()))
    operators = report.get("stateOperators") or ()
    partitions = (_count(operator.get("numShufflePartitions")) or 0 for operator in operators)
    return Progress(
        run_id=str(report["runId"]),
        batch_id=int(report["batchId"]),
        started_at_s=started_at_s,
        batch=_batch(report, started_at_s, sources),
        sources=sources,
        state_bytes=sum(map(_state_bytes, operators)),
        state_partitions=max(partitions, default=0),
    )


def _batch(
    report: Mapping[str, Any], started_at_s: float, sources: tuple[SourceProgress, ...]
) -> Batch | None:
    durations = report.get("durationMs") or {}
    if _RAN not in durations:
        return None
    phases = {
        name: milliseconds / 1000.0
        for name, value in durations.items()
        if name != _WHOLE and (milliseconds := _count(value)) is not None
    }
    whole_ms = _count(durations.get(_WHOLE))
    duration_s = sum(phases.values()) if whole_ms is None else whole_ms / 1000.0
    # The sources' counts are the same sum, except where their offsets correct it.
    records = sum(source.input_records for source in sources)
    if not sources:
        records = _count(report.get("numInputRows")) or 0
    seen = observed(report.get("observedMetrics") or {})
    return Batch(int(report["batchId"]), started_at_s, duration_s, records, phases, seen)


def observed(metrics: Mapping[str, Mapping[str, Any] | None]) -> dict[str, float]:
    """Numbers that the job observed, by the name of the observation and that of the metric.

    Texts, NaN and what exceeds `MOST_OBSERVED` are left out: they go into every line of a journal.

    >>> observed({"input": {"malformed": 3, "rows": 1000, "last": "EOF", "mean": float("nan")}})
    {'input.malformed': 3.0, 'input.rows': 1000.0}
    """
    numbers = {
        f"{name}.{metric}": float(value)
        for name, row in metrics.items()
        for metric, value in (row or {}).items()
        if type(value) in (int, float) and isfinite(value)
    }
    return dict(islice(numbers.items(), MOST_OBSERVED))


def _source(source: Mapping[str, Any]) -> SourceProgress:
    start, end = source.get("startOffset"), source.get("endOffset")
    records = _count(source.get("numInputRows")) or 0
    first, last = partition_offsets(start), partition_offsets(end)
    if first and last and first.keys() == last.keys():
        # A sink that reads its input twice makes Spark count it twice; offsets are right.
        records = sum(last.values()) - sum(first.values())
    return SourceProgress(end, source.get("latestOffset"), max(0, records))


def _state_bytes(operator: Mapping[str, Any]) -> float:
    """What one stateful operator holds: in memory, or in files if that is more."""
    in_files = (operator.get("customMetrics") or {}).get(_FILE_BYTES)
    return float(max(_count(operator.get("memoryUsedBytes")) or 0, _count(in_files) or 0))


def _count(value: Any) -> int | None:
    """A finite number that is not negative, or ``None``; Spark writes some numbers as text.

    >>> [_count(value) for value in (3, 3.0, "17", -1, float("nan"), "NaN", "N/A", "", None)]
    [3, 3, 17, None, None, None, None, None, None]
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if isfinite(number) and number >= 0 else None


def partition_offsets(offset: Any) -> dict[Partition, int] | None:
    """The offsets of a Kafka source by partition; ``None`` for what is not that.

    >>> partition_offsets({"bids": {"0": 12, "1": 40}})
    {('bids', 0): 12, ('bids', 1): 40}
    >>> partition_offsets(93), partition_offsets({"logOffset": 5}), partition_offsets(None)
    (None, None, None)
    """
    if not isinstance(offset, dict) or not offset:
        return None
    found: dict[Partition, int] = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            return None
        for partition, position in partitions.items():
            if not partition.isdecimal() or type(position) is not int or position < 0:
                return None
            found[topic, int(partition)] = position
    return found


def parse_instant(text: str) -> float:
    """Seconds since the epoch; the status store writes GMT where progress writes Z.

    >>> parse_instant("1970-01-01T00:00:02.250Z"), parse_instant("1970-01-01T00:01:00.000GMT")
    (2.25, 60.0)
    """
    return datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp()
