"""The past of an application follows from its reports, in worked numbers."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from msgspec import structs

from penstock.core.model import Batch
from penstock.lab.advise.events import ExecutorChange, LogPart, QueryReport, StageRun
from penstock.lab.advise.history import CannotSayError, History, history
from penstock.lab.advise.logs import LogFile
from penstock.lab.experiments.score import Delays
from penstock.simulation.engines.engine import Level

AT_S = 1_800_000.0  # a whole multiple of all intervals
KAFKA = "KafkaV2[Subscribe[events]]"


def report(
    number: int, *, rps: float = 100.0, every_s: float = 10.0, **changed: Any
) -> QueryReport:
    """A batch every 10 s that takes all that arrived, 100 records/s, and lasts 4 s."""
    arrived = rps * every_s * number
    at_s = AT_S + every_s * number
    batch = Batch(number, at_s, 4.0, int(rps * every_s))
    said: dict[str, Any] = {
        "query": "q",
        "run": "r",
        "at_s": at_s,
        "batch": batch,
        "taken": arrived,
        "arrived": arrived,
        "source": KAFKA,
    } | changed
    if said["batch"]:
        said["batch"] = structs.replace(said["batch"], started_at_s=said["at_s"])
    return QueryReport(**said)


def part(reports: list[QueryReport], number: int = 0, **fields: Any) -> LogPart:
    came = [ExecutorChange(AT_S - 60.0, name, 2) for name in ("1", "2")]
    fields = {"executors": came, "application": "app-1"} | fields
    return LogPart(LogFile("log", "log", number=number), reports=deque(reports), **fields)


def past(count: int = 20, **fields: Any) -> History:
    return history([part([report(number) for number in range(count)], **fields)])


def test_records_wait_from_their_arrival_to_the_end_of_the_batch_that_took_them() -> None:
    # The first of a batch arrives 10 s before it begins and waits 14 s, the last one waits 4 s:
    # of the ten seconds between, four are over 10 s. The records of the last trigger have just
    # come when the log ends; they count by their age, 0 to 10 s.
    found = past()
    assert (found.begin_s, found.end_s) == (AT_S + 30.0, AT_S + 190.0)
    delays = Delays.of(found.outcome())
    assert delays.longest() == pytest.approx(14.0)
    assert delays.fraction_above(10.0) == pytest.approx(0.4 * 15 / 16)


def test_a_journal_shows_load_backlog_and_delay_at_each_turn() -> None:
    # Two turns after a trigger, at +10 s: the batch of +0 s is done, all since then waits.
    steps = list(past().steps())
    assert [step.at_s - steps[0].at_s for step in steps[:3]] == [0.0, 10.0, 20.0]
    seen = steps[2].snapshot
    assert seen is not None
    assert seen.arrival_rps == pytest.approx(100.0)
    assert seen.backlog_records == pytest.approx(1000.0)
    assert seen.delay_s == pytest.approx(10.0, abs=0.01)
    assert [batch.id for batch in seen.batches] == [4]
    assert (seen.fleet.active, seen.fleet.cores_per_executor) == (2, 2)


def cold(cpu_s: float = 12.0, **fields: Any) -> float:
    """What joining costs: batches of 1000 records take 2 s of a processor, the first one more."""
    reports = [report(number) for number in range(20)]
    ran = [StageRun("r", n, 4, 3.0, AT_S, AT_S + 3.0, 2.0 if n else cpu_s) for n in range(20)]
    own: dict[str, Any] = {"first": reports[0], "first_stages": ran[:1], "stages": deque(ran)}
    return history([part(reports, **own | fields)]).join_s


def started(*asked_s: float | None) -> tuple[float, float] | None:
    """How long executors took that came at -60 s and, from the third on, at 50 s."""
    came_s = [AT_S - 60.0] * 2 + [AT_S + 50.0] * (len(asked_s) - 2)
    both = enumerate(zip(came_s, asked_s, strict=True))
    came = [ExecutorChange(at_s, str(n), 2, asked and AT_S + asked) for n, (at_s, asked) in both]
    found = past(executors=came).startup
    return (found.shortest_s, found.longest_s) if found else None


def test_an_executor_takes_from_when_it_was_asked_for_to_when_it_came() -> None:
    # At the start 20 and 10 s, later 10 s; those of a running job count, if there are any.
    assert started(-80.0, -70.0) == pytest.approx((11.0, 19.0))
    assert started(-80.0, -70.0, 40.0) == pytest.approx((10.0, 10.0))
    assert started(-80.0, None, None) == pytest.approx((20.0, 20.0))
    assert started(None, None) is None


def test_an_executor_is_paid_for_from_the_request_until_it_is_gone() -> None:
    # Judged from 30 s on. The third is asked for at 60 s, comes at 70 s and goes at 90 s; one that
    # was never there goes at 80 s.
    came = [ExecutorChange(AT_S - 60.0, name, 2, AT_S - 80.0) for name in ("1", "2")]
    came.append(ExecutorChange(AT_S + 70.0, "3", 2, AT_S + 60.0))
    gone = [ExecutorChange(AT_S + 80.0, "4"), ExecutorChange(AT_S + 90.0, "3")]
    paid = past(executors=came + gone).outcome().paid
    assert paid == [Level(0.0, 2), Level(30.0, 3), Level(50.0, 3), Level(60.0, 2)]


def test_what_new_executors_cost_is_what_the_first_batch_took_more_of_a_processor() -> None:
    # 12 s for 1000 records, where later batches take 2 s: 10 s, of two executors.
    assert cold() == pytest.approx(5.0)
    assert cold(cpu_s=1.0) == 0.0
    assert cold(cpu_s=500.0) == 15.0


def test_without_the_beginning_of_a_log_joining_costs_nothing() -> None:
    assert cold(first=None) == 0.0
    assert cold(first_stages=[]) == 0.0
    assert cold(application="") == 0.0  # rolled files of which the first is gone


def test_each_second_has_its_rate() -> None:
    rates = past().rates_rps()
    assert len(rates) == 160
    assert rates == pytest.approx([100.0] * 160)


def test_executors_count_from_when_they_come_until_they_go() -> None:
    changes = [
        ExecutorChange(AT_S, "driver", 4),
        ExecutorChange(AT_S, "1", 1),
        ExecutorChange(AT_S + 50.0, "2", 1),
        ExecutorChange(AT_S + 80.0, "1"),
        ExecutorChange(AT_S + 999.0, "2"),  # after the last trigger
    ]
    fleet = past(executors=changes).outcome().paid
    assert fleet == [Level(0.0, 1), Level(20.0, 2), Level(50.0, 1)]


def test_a_task_that_takes_two_cores_halves_the_slots() -> None:
    assert past(conf={"spark.task.cpus": "2"}).cores == 1


def test_stages_belong_to_their_batch() -> None:
    ended = StageRun("r", 12, 4, 3.0, AT_S + 120.5, AT_S + 122.0)
    batches = past(stages=deque([ended])).batches
    assert batches[9].id == 12
    assert [(one.tasks, one.work_s, one.end_s) for one in batches[9].stages] == [(4, 3.0, 2.0)]
    assert not batches[8].stages


@pytest.mark.parametrize("every_s", [2.0, 10.0, 60.0])
def test_the_trigger_is_the_grid_on_which_batches_begin(every_s: float) -> None:
    # A third of the batches begins late, after one that took too long.
    reports = [report(number, every_s=every_s) for number in range(30)]
    late = [
        report(number, every_s=every_s, at_s=one.at_s + 0.3) if number % 3 == 0 else one
        for number, one in enumerate(reports)
    ]
    assert history([part(late)]).trigger_s == every_s


def test_without_a_trigger_it_is_the_time_between_batches() -> None:
    reports = [report(number, at_s=AT_S + 4.03 * number) for number in range(30)]
    assert history([part(reports)]).trigger_s == 4.0


def test_a_small_query_beside_a_large_one_does_not_matter() -> None:
    small = [
        report(number, query="small", batch=Batch(number, AT_S, 0.1, 1)) for number in range(20)
    ]
    assert {one.query for one in history([part([*small, *past().triggers])]).triggers} == {"q"}


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([part([])], "it has no streaming query that committed a batch"),
        ([part([report(0, batch=None)])], "it has no streaming query that committed a batch"),
        ([part([report(n) for n in range(3)])], "the log is too short: 3 batches"),
        (
            [part([report(n) for n in range(9)], executors=[ExecutorChange(0.0, "driver", 4)])],
            "it ran in local mode, without executors",
        ),
        (
            [part([report(n, arrived=None, source="FileStreamSource[in]") for n in range(9)])],
            r"the source FileStreamSource\[in\] does not say how many records had arrived",
        ),
        (
            [part([report(n, query=name) for n in range(9) for name in ("a", "b")])],
            "2 queries share the fleet, and the busiest has 50% of the time",
        ),
    ],
)
def test_what_a_log_does_not_carry_is_said(parts: list[LogPart], sentence: str) -> None:
    with pytest.raises(CannotSayError, match=sentence):
        history(parts)
