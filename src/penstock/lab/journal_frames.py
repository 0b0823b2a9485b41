"""Many journals as one Spark DataFrame: ``read_journals(spark, "s3a://bucket/journals/*")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STEP = """
at_s double,
snapshot struct<
  fleet: struct<target: bigint, registered: bigint, active: bigint>,
  arrival_rps: double, throughput_rps: double, backlog_records: double,
  delay_s: double, latency_s: double, state_bytes: double>,
decision struct<
  target_executors: bigint, wanted_executors: bigint,
  reasons: array<struct<code: string, text: string>>>,
receipt struct<accepted: boolean, text: string>
"""
_POLICY = "format string, policy string, run struct<policy: string>"
#: The columns of `read_journals`, and where each comes from in a line of the journal.
COLUMNS = {
    "at_s": "step.at_s",
    "target": "step.snapshot.fleet.target",
    "registered": "step.snapshot.fleet.registered",
    "active": "step.snapshot.fleet.active",
    "arrival_rps": "step.snapshot.arrival_rps",
    "throughput_rps": "step.snapshot.throughput_rps",
    "backlog_records": "step.snapshot.backlog_records",
    "delay_s": "step.snapshot.delay_s",
    "latency_s": "step.snapshot.latency_s",
    "state_bytes": "step.snapshot.state_bytes",
    "decided": "step.decision.target_executors",
    "wanted": "step.decision.wanted_executors",
    "code": "step.decision.reasons[0].code",
    "reason": "step.decision.reasons[0].text",
    "accepted": "step.receipt.accepted",
}


def read_journals(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """A row per turn of all journals at a path that Spark can read, in parallel.

    Columns are `journal` (the file), `policy` (of its header) and those of ``COLUMNS``, which
    docs/journal.md explains. What was not measured is null. A line that is damaged or cut off is
    left out, as every reader of journals does.
    """
    from pyspark.sql import functions as f

    lines = spark.read.text(path).withColumn("journal", f.input_file_name())
    header = f.from_json("value", _POLICY)
    policies = (
        lines.where(f.col("value").startswith('{"format":'))
        .select("journal", f.coalesce(header["policy"], header["run"]["policy"]).alias("policy"))
        .groupBy("journal")
        .agg(f.first("policy").alias("policy"))
    )
    steps = lines.select("journal", f.from_json("value", _STEP).alias("step"))
    columns = [f.expr(source).alias(name) for name, source in COLUMNS.items()]
    turns = steps.where("step.at_s is not null").select("journal", *columns)
    return turns.join(f.broadcast(policies), "journal", "left").select(
        "journal", "policy", *COLUMNS
    )
