"""A pipeline run once over a table, and once over a stream of the same values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TIMEOUT_S = 200


@dataclass(frozen=True)
class StreamRun:
    """The rows that a stream gave, batch after batch, and what it said about each batch."""

    rows: list[Row]
    progress: list[dict[str, Any]]

    def malformed(self, observation: str) -> int:
        """How many malformed records were observed in all batches."""
        observed = [each["observedMetrics"] for each in self.progress]
        return sum(each[observation]["malformed"] for each in observed if observation in each)


def table(spark: SparkSession, values: Iterable[bytes | None]) -> DataFrame:
    """The values as Kafka would give them."""
    rows = [(value if value is None else bytearray(value),) for value in values]
    return spark.createDataFrame(rows, "value BINARY")


def run_stream(
    spark: SparkSession,
    pipeline: Callable[[DataFrame], DataFrame],
    values: list[bytes],
    place: Path,
    *,
    mode: Literal["append", "update"],
    batches: int = 3,
) -> StreamRun:
    """Run a stream of the values to its end, an equal part of them in each batch."""
    inbox = place / "in"
    inbox.mkdir(parents=True)
    size = -(-len(values) // batches)
    for i in range(batches):
        file = inbox / f"{i:03}.txt"
        file.write_bytes(b"\n".join(values[i * size : (i + 1) * size]))
        # Spark takes the oldest file first; files of one moment come in any order, so late.
        os.utime(file, (1_000 + i, 1_000 + i))
    source = spark.readStream.option("maxFilesPerTrigger", 1).text(str(inbox))
    name = f"rows_of_{place.name}".replace("-", "_")
    query = (
        pipeline(source)
        .writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S)
        progress = [msgspec.json.decode(each.json) for each in query.recentProgress]
        return StreamRun(spark.table(name).collect(), progress)
    finally:
        query.stop()
