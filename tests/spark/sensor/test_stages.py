"""Stages sorted into operators, from status entries with worked numbers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.model import Batch
from penstock.spark.sensor.stages import QueryStages, share_idle_time


def stage(number: int, *, tasks: int = 4, status: str = "COMPLETE", **counts: int) -> Any:
    entry = {
        "stageId": number,
        "attemptId": 0,
        "status": status,
        "numTasks": tasks,
        "executorRunTime": 0,
        "inputRecords": 0,
        "outputRecords": 0,
        "shuffleReadRecords": 0,
        "shuffleWriteRecords": 0,
    }
    return entry | counts


def test_a_chain_is_a_source_and_the_state_behind_it() -> None:
    """Over 10 s on 2 slots: two batches, 4 s and 6 s of task time."""
    query = QueryStages()
    query.begin()
    for batch in (7, 8):
        first = 10 * batch
        source = stage(first, executorRunTime=2000, inputRecords=1000, shuffleWriteRecords=400)
        state = stage(first + 1, executorRunTime=3000, shuffleReadRecords=400)
        query.observe(batch, [source], 4, 1.0)
        query.observe(batch, [state], 4, 1.0)
    read, kept = query.operators(wall_s=10.0, slots=2, prefix="")
    assert (read.name, read.upstream, read.tasks) == ("source", (), 4)
    assert (read.input_rps, read.output_rps) == (200.0, 80.0)
    assert read.busy_fraction == pytest.approx(4 / 20)
    assert read.service_time_s == pytest.approx(0.002)
    assert (kept.name, kept.upstream) == ("state", ("source",))
    assert kept.busy_fraction == pytest.approx(6 / 20)
    assert kept.output_rps is None


def test_stages_take_turns_on_the_slots() -> None:
    """Over 10 s on 2 slots, 4 s and 6 s of task time: half of the slots' time is idle."""
    query = QueryStages()
    query.observe(7, [stage(0, executorRunTime=4000, inputRecords=1000)], 4, 1.0)
    query.observe(7, [stage(1, executorRunTime=6000, shuffleReadRecords=400)], 4, 1.0)
    stages = share_idle_time(query.operators(wall_s=10.0, slots=2, prefix=""))
    assert sum(each.busy_fraction or 0.0 for each in stages) == pytest.approx(0.5)
    assert [each.idle_fraction for each in stages] == [pytest.approx(0.5)] * 2
    assert [each.backpressured_fraction for each in stages] == [None, None]


def test_stages_of_several_queries_share_the_idle_time() -> None:
    """1 s and 2 s of 10: 0.7 is idle. Finished tasks may have begun earlier: never below zero."""
    one, other = QueryStages(), QueryStages()
    one.observe(0, [stage(0, executorRunTime=1000, inputRecords=10)], 0, 1.0)
    other.observe(0, [stage(1, executorRunTime=2000, inputRecords=10)], 0, 1.0)
    both = [*one.operators(10.0, 1, "a/"), *other.operators(10.0, 1, "b/")]
    assert [each.idle_fraction for each in share_idle_time(both)] == [pytest.approx(0.7)] * 2
    late = [*one.operators(1.0, 1, "a/"), *other.operators(2.0, 1, "b/")]
    assert [each.idle_fraction for each in share_idle_time(late)] == [0.0, 0.0]


def test_a_join_reads_both_its_sources() -> None:
    query = QueryStages()
    query.observe(0, [stage(0, inputRecords=5, shuffleWriteRecords=5)], 4, 1.0)
    query.observe(0, [stage(1, inputRecords=5, shuffleWriteRecords=5)], 4, 1.0)
    query.observe(0, [stage(2, shuffleReadRecords=10, shuffleWriteRecords=3)], 4, 1.0)
    query.observe(0, [stage(3, tasks=2, shuffleReadRecords=3)], 4, 1.0)
    operators = query.operators(wall_s=1.0, slots=1, prefix="q3/")
    assert [(each.name, each.upstream) for each in operators] == [
        ("q3/source", ()),
        ("q3/source 2", ()),
        ("q3/state", ("q3/source", "q3/source 2")),
        ("q3/shuffle", ("q3/state",)),
    ]
    assert query.most_tasks is None  # wider stages may come
    query.with_stages(Batch(0, 0.0, 1.0, 1))
    assert query.most_tasks == 4


def test_a_table_that_is_broadcast_first_is_no_source() -> None:
    """YSB joins with its campaigns: their stage reads no records of a stream."""
    query = QueryStages()
    query.observe(0, [stage(0, tasks=1, executorRunTime=20)], 4, 1.0)
    query.observe(0, [stage(1, inputRecords=50, shuffleWriteRecords=30)], 4, 1.0)
    query.observe(0, [stage(2, shuffleReadRecords=30)], 4, 1.0)
    operators = query.operators(wall_s=1.0, slots=1, prefix="")
    assert [(each.name, each.upstream) for each in operators] == [
        ("source", ()),
        ("state", ("source",)),
    ]


def test_a_batch_that_is_not_committed_says_nothing_about_parallelism() -> None:
    """Its first stage has one task; the second, which never begins, would have eight."""
    query = QueryStages()
    query.observe(0, [stage(0, tasks=1, status="FAILED", inputRecords=10)], 0, 1.0)
    assert query.most_tasks is None
    query.observe(0, [stage(1, tasks=8, shuffleReadRecords=10)], 0, 1.0)
    query.observe(1, [stage(2, tasks=1, inputRecords=10)], 0, 1.0)  # so the first is committed
    assert query.most_tasks == 8


def test_a_stage_that_is_read_while_it_runs_is_counted_once() -> None:
    query = QueryStages()
    query.begin()
    query.observe(3, [stage(9, status="ACTIVE", executorRunTime=400, inputRecords=100)], 0, 1.0)
    assert query.places[0].tally.records_in == 100
    query.begin()
    query.observe(3, [stage(9, executorRunTime=1000, inputRecords=250)], 0, 1.0)
    assert query.places[0].tally.records_in == 150
    assert query.places[0].tally.run_s == pytest.approx(0.6)


def test_a_complete_stage_of_a_job_that_still_runs_is_counted_once() -> None:
    query = QueryStages()
    for records in (250, 0):
        query.begin()
        query.observe(3, [stage(9, executorRunTime=1000, inputRecords=250)], 0, 1.0)
        query.observe(3, [stage(10, status="ACTIVE")], 0, 1.0)
        assert query.places[0].tally.records_in == records


def test_an_empty_batch_does_not_change_what_a_stage_is() -> None:
    query = QueryStages()
    for batch, records in ((0, 40), (1, 0)):
        query.observe(batch, [stage(2 * batch, inputRecords=records)], 4, 1.0)
        query.observe(batch, [stage(2 * batch + 1, shuffleReadRecords=records)], 4, 1.0)
    assert query.roles() == ["source", "state"]


def test_the_work_of_a_failed_attempt_counts_and_skipped_stages_do_not() -> None:
    query = QueryStages()
    failed = stage(5, status="FAILED", executorRunTime=500, inputRecords=10)
    again = stage(5, executorRunTime=700, inputRecords=20) | {"attemptId": 1}
    query.observe(0, [failed, again], 0, 1.0)
    query.observe(0, [stage(6, status="SKIPPED")], 0, 1.0)
    assert len(query.places) == 1
    assert query.places[0].tally.run_s == pytest.approx(1.2)
    assert query.places[0].newest == (5, 1)


def test_jobs_that_were_passed_over_are_made_up_for() -> None:
    """Three of four jobs were too many to look at: the fourth counts four times."""
    query = QueryStages()
    query.observe(0, [stage(0, executorRunTime=100, inputRecords=50)], 0, 4.0)
    assert query.places[0].tally.records_in == 200
