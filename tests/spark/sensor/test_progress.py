"""Reports that PySpark 4.0.5 and 4.3.0 really wrote, and what must be made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import SensorError
from penstock.spark.sensor.progress import (
    Progress,
    SourceProgress,
    parse_progress,
    partition_offsets,
)

RECORDED: list[dict[str, Any]] = msgspec.json.decode(
    (Path(__file__).parent / "progress_reports.json").read_bytes()
)
VERSIONS = ("4.0.5", "4.3.0")
both_versions = pytest.mark.parametrize("version", VERSIONS)


def recorded(version: str, case: str) -> dict[str, Any]:
    (found,) = [each for each in RECORDED if (each["spark"], each["case"]) == (version, case)]
    report: dict[str, Any] = found["report"]
    return report


def parsed(report: dict[str, Any]) -> Progress:
    return parse_progress(msgspec.json.encode(report))


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['spark']}-{case['case']}")
def test_every_recorded_report_can_be_read(case: dict[str, Any]) -> None:
    report = case["report"]
    progress = parsed(report)
    assert progress.run_id == report["runId"]
    assert progress.batch_id == report["batchId"]
    assert len(progress.sources) == len(report["sources"])
    if progress.batch is not None:
        assert progress.batch.input_records == report["numInputRows"]
        assert progress.batch.duration_s == report["durationMs"]["triggerExecution"] / 1000
        assert sum(progress.batch.phases.values()) <= progress.batch.duration_s + 0.01


@both_versions
def test_a_batch_has_its_start_its_duration_and_its_phases_in_seconds(version: str) -> None:
    report = recorded(version, "rate_counts_in_memory")
    batch = parsed(report).batch
    assert batch is not None
    assert batch.started_at_s == pytest.approx(1794779000, abs=200)
    assert set(batch.phases) == set(report["durationMs"]) - {"triggerExecution"}
    assert batch.phases["addBatch"] == report["durationMs"]["addBatch"] / 1000


@both_versions
def test_an_idle_report_is_no_batch(version: str) -> None:
    assert parsed(recorded(version, "files_idle")).batch is None


@both_versions
def test_state_is_what_all_operators_hold_and_where(version: str) -> None:
    report = recorded(version, "rate_join_in_rocksdb")
    progress = parsed(report)
    assert progress.state_partitions == 2
    (operator,) = report["stateOperators"]
    assert progress.state_bytes == operator["memoryUsedBytes"]
    operator["customMetrics"]["rocksdbSstFileSize"] = 5_000_000  # most of it in files
    assert parsed(report).state_bytes == 5_000_000.0


@both_versions
def test_a_query_without_state_holds_nothing(version: str) -> None:
    progress = parsed(recorded(version, "rate_stateless"))
    assert (progress.state_bytes, progress.state_partitions) == (0.0, 0)


def test_a_join_of_two_topics_reads_the_partitions_of_both_at_once() -> None:
    def topic(name: str) -> SourceProgress:
        return SourceProgress({name: {str(number): 7 for number in range(12)}})

    join = Progress("run", 3, 0.0, None, (topic("bids"), topic("auctions")), 0.0, 6)
    assert join.tasks_at_once == 24


@both_versions
def test_a_source_that_took_all_there_was_is_drained(version: str) -> None:
    (rate,) = parsed(recorded(version, "rate_stateless")).sources
    assert rate.end_offset == rate.latest_offset
    assert rate.is_drained
    report = recorded(version, "rate_stateless")
    report["sources"][0]["latestOffset"] += 1
    assert not parsed(report).sources[0].is_drained


@both_versions
def test_a_sink_that_reads_twice_does_not_double_the_records_of_kafka(version: str) -> None:
    """21 lines were counted twice by the sink; with offsets at hand the truth is known."""
    report = recorded(version, "counted_twice")
    assert report["numInputRows"] == 42
    source = report["sources"][0]
    source["startOffset"] = {"lines": {"0": 100, "1": 50}}
    source["endOffset"] = {"lines": {"0": 111, "1": 60}}
    batch = parsed(report).batch
    assert batch is not None
    assert batch.input_records == 21


@pytest.mark.parametrize("nothing", [-1, None, "NaN", "N/A", ""])
def test_what_is_no_number_is_not_counted(nothing: object) -> None:
    report = recorded("4.0.5", "rate_counts_in_memory")
    report["sources"][0]["numInputRows"] = nothing
    report["stateOperators"][0]["memoryUsedBytes"] = nothing
    report["durationMs"]["walCommit"] = nothing
    progress = parsed(report)
    assert progress.batch is not None
    assert progress.batch.input_records == 0
    assert progress.state_bytes == 0.0
    assert "walCommit" not in progress.batch.phases


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"runId": "r", "timestamp": "noon"}'])
def test_what_is_no_report_is_one_sentence(text: str) -> None:
    with pytest.raises(SensorError, match="cannot read the progress of a query: "):
        parse_progress(text)


offsets = st.dictionaries(
    st.text(min_size=1), st.dictionaries(st.integers(0, 99), st.integers(0)), min_size=1
)


@given(offsets)
def test_offsets_come_back_by_partition(topics: dict[str, dict[int, int]]) -> None:
    written = {topic: {str(n): at for n, at in each.items()} for topic, each in topics.items()}
    expected = {(topic, n): at for topic, each in topics.items() for n, at in each.items()}
    assert partition_offsets(written) == expected


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_offsets_of_other_sources_are_not_taken_for_partitions(offset: object) -> None:
    found = partition_offsets(offset)
    assert found is None or all(at >= 0 for at in found.values())


@both_versions
def test_observed_numbers_are_in_the_batch(version: str) -> None:
    """A count of malformed records reaches the journal; texts and missing rows do not."""
    seen = {"input": {"malformed": 3, "ok": True, "last": "EOF", "share": 0.25}, "none": None}
    report = recorded(version, "rate_counts_in_memory") | {"observedMetrics": seen}
    batch = parsed(report).batch
    assert batch is not None
    assert batch.observed == {"input.malformed": 3.0, "input.share": 0.25}


@both_versions
def test_a_job_that_observes_much_does_not_fill_the_journal(version: str) -> None:
    many = {"all": {f"m{number}": number for number in range(50)}}
    batch = parsed(recorded(version, "rate_counts_in_memory") | {"observedMetrics": many}).batch
    assert batch is not None
    assert list(batch.observed) == [f"all.m{number}" for number in range(20)]
