"""What a change of the fleet costs a job, learned from what follows it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from penstock.core.knowledge import Rescale
from penstock.core.model import Batch, ExecutorSample, Fleet, Snapshot
from penstock.policies.penstock.estimate import CapacityEstimate
from penstock.policies.penstock.rescaling import (
    Growth,
    HoldUp,
    learn_growth,
    learn_hold_ups,
    learn_startup,
)
from penstock.policies.penstock.rescaling import learn_hold_up as learn_line

#: 100 us of a core for each record: four executors of one core carry about 39 k/s.
KNOWN = CapacityEstimate(work_s=1e-4, fixed_s=0.0, samples=9.0)
ASKED_S = 100.0


def minute(
    delays_s: dict[float, float], loads_rps: dict[float, float], usual_rps: float = 24e3
) -> list[Snapshot]:
    """From 90 to 160 s, every ten; asked to grow from 2 to 4 at 100 s, the fleet does at 120 s."""
    return [
        Snapshot(
            at_s, Fleet(2 if at_s <= ASKED_S else 4, 4, 2 if at_s < 120.0 else 4),
            arrival_rps=loads_rps.get(at_s, usual_rps), delay_s=delays_s.get(at_s, 0.0),
        )
        for at_s in (90.0, 100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0)
    ]  # fmt: skip


def test_what_growing_was_good_for_is_judged_when_it_has_settled() -> None:
    """Two executors carried 19.8 k/s, four were expected to carry 38.8 k/s.

    Then each record costs 1.95 times as much, because all share one disk: four carry 19.9 k/s.
    """
    asked = [Rescale(ASKED_S, 2, 4)]
    begun = learn_growth(Growth(), KNOWN, Snapshot(110.0, Fleet(4, 2, 2)), asked, 60.0)
    assert (begun.before, begun.after) == (2, 4)
    assert begun.before_rps == pytest.approx(19.8e3, rel=0.01)
    slower = CapacityEstimate(work_s=1.95e-4, fixed_s=0.0, executors=4)
    four = Fleet(4, 4, 4)
    assert learn_growth(begun, slower, Snapshot(150.0, four), asked, 60.0) == begun
    judged = learn_growth(begun, slower, Snapshot(170.0, four), asked, 60.0)
    assert judged.gain == pytest.approx(0.005, abs=0.01)
    assert judged.known_at_s == 170.0
    # It is judged once; the next growth is another.
    assert learn_growth(judged, KNOWN, Snapshot(180.0, four), asked, 60.0) == judged
    again = [*asked, Rescale(200.0, 4, 6)]
    assert learn_growth(judged, slower, Snapshot(210.0, Fleet(6, 4, 4)), again, 60.0).gain is None


def test_growing_is_not_judged_by_what_one_batch_had_promised() -> None:
    """One small batch says 1.7 k/s for two executors, the next ones 587/s: that is no verdict."""
    asked = [Rescale(ASKED_S, 1, 2)]
    vague = CapacityEstimate(work_s=1.1e-3, fixed_s=0.4, samples=1.0)
    begun = learn_growth(Growth(), vague, Snapshot(110.0, Fleet(2, 1, 1)), asked, 60.0)
    later = CapacityEstimate(work_s=3.3e-3, fixed_s=0.4, samples=6.0, executors=2)
    two = Snapshot(170.0, Fleet(2, 2, 2))
    assert learn_growth(begun, later, two, asked, 60.0).gain is None
    sure = replace(vague, samples=9.0)
    begun = learn_growth(Growth(), sure, Snapshot(110.0, Fleet(2, 1, 1)), asked, 60.0)
    gain = learn_growth(begun, later, two, asked, 60.0).gain
    assert gain is not None
    assert gain < 0.0


def learn_hold_up(
    known_s: float | None, track: CapacityEstimate, recent: Sequence[Snapshot], asked_s: float
) -> float | None:
    return learn_line(HoldUp(known_s), track, recent, asked_s).seconds(None)


def test_the_worst_delay_after_it_is_what_it_cost() -> None:
    # 6 + 0.3 x (16 - 6)
    recent = minute({120.0: 16.0, 130.0: 9.0}, {})
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S) == pytest.approx(9.0)


def test_it_is_looked_at_once_when_it_is_over() -> None:
    recent = minute({120.0: 16.0}, {})
    assert learn_hold_up(6.0, KNOWN, recent[:-1], ASKED_S) == 6.0


def test_executors_that_take_minutes_to_come_hold_the_job_up_when_they_do() -> None:
    recent = minute({120.0: 16.0}, {})
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S - 300.0) == pytest.approx(9.0)


def test_what_a_rising_load_leaves_behind_is_not_its_fault() -> None:
    # 60 k/s come from 120 s on. Two executors and four carry 29.3 k/s on average, then 38.8 k/s:
    # 5.1 s of arrivals wait by that alone, then 8.7 s. It is 2 s more: 6 + 0.3 x (2 - 6).
    rising = dict.fromkeys((120.0, 130.0, 140.0, 150.0, 160.0), 60e3)
    recent = minute({120.0: 7.11, 130.0: 10.64}, rising)
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S) == pytest.approx(4.8, abs=0.01)


def test_a_flood_that_no_fleet_carries_tells_nothing_of_it() -> None:
    recent = minute({120.0: 90.0, 150.0: 120.0}, {120.0: 900e3})
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S) == 6.0


def test_nor_does_a_job_that_has_caught_up_before_anybody_looks() -> None:
    assert learn_hold_up(6.0, KNOWN, minute({}, {}, usual_rps=2e3), ASKED_S) == 6.0


def query(*turns: tuple[float, int, list[Batch]]) -> list[Snapshot]:
    """What was seen of a query with a trigger of 2 s: when, how many executors, which batches.

    The executor beyond the first came at 104 s.
    """
    return [
        Snapshot(
            at_s, Fleet(2, executors, executors), trigger_interval_s=2.0,
            batches=tuple(batches), arrival_rps=1e3,
            executors=tuple(ExecutorSample(str(n), 104.0 * n) for n in range(executors)),
        )
        for at_s, executors, batches in turns
    ]  # fmt: skip


#: A core does 10 k records/s: a batch of 2,000 takes 0.22 s at most on one executor.
BEFORE, HELD_UP, AFTER = (
    Batch(1, 100.0, 0.2, 2_000), Batch(2, 103.0, 5.22, 2_000), Batch(3, 108.3, 0.22, 2_000),
)  # fmt: skip


def test_a_batch_that_an_executor_joined_shows_what_that_cost() -> None:
    recent = query((102.0, 1, [BEFORE]), (112.0, 2, [HELD_UP, AFTER]))
    assert learn_hold_up(None, KNOWN, recent, ASKED_S) == pytest.approx(5.0)


def test_a_batch_that_ends_long_after_the_executor_came_still_does() -> None:
    began = query((102.0, 1, [BEFORE]), (105.0, 2, []), (108.0, 2, []))
    ended = query((108.25, 2, [HELD_UP]))
    assert learn_hold_up(None, KNOWN, [*began, *ended], ASKED_S) is None  # the next may be worse
    over = query((111.0, 2, [AFTER]))
    assert learn_hold_up(None, KNOWN, [*began, *ended, *over], ASKED_S) == pytest.approx(5.0)
    later = query((114.0, 2, [Batch(4, 112.0, 9.0, 2_000)]))
    learned_s = learn_hold_up(5.0, KNOWN, [*began, *ended, *over, *later], ASKED_S)
    assert learned_s == 5.0  # what comes afterwards is no fault of the executor


def test_the_first_executors_that_come_tell_how_long_they_take() -> None:
    before, now = query((102.0, 1, []), (112.0, 2, []))
    assert learn_startup(None, now, before, ASKED_S) == 5.0  # 4 s, but no less than 5 s
    assert learn_startup(None, now, before, 80.0) == 24.0
    assert learn_startup(34.0, now, before, 80.0) == pytest.approx(31.0)
    assert learn_startup(None, before, before, ASKED_S) is None


def test_executors_that_are_awaited_for_long_take_at_least_as_long() -> None:
    waiting = Snapshot(140.0, Fleet(2, 2, 1), executors=(ExecutorSample("1", 100.0, False),))
    assert learn_startup(None, waiting, waiting, ASKED_S) == 40.0
    assert learn_startup(50.0, waiting, waiting, ASKED_S) == 50.0
    soon = Snapshot(120.0, Fleet(2, 2, 1), executors=(ExecutorSample("1", 100.0, False),))
    assert learn_startup(None, soon, soon, ASKED_S) is None  # no longer than is assumed anyway


def test_more_state_holds_a_change_up_for_longer() -> None:
    # 1 s and 2 s per GB, as far as it was seen to vary: with a state that grew from 1 to 8 GB.
    known = HoldUp()
    for gigabytes in (1.0, 2.0, 4.0, 8.0):
        known = known.updated(1.0 + 2.0 * gigabytes, 1e9 * gigabytes)
    small_s, now_s, large_s = (known.seconds(1e9 * size) or 0.0 for size in (0.5, 8.0, 16.0))
    assert 0.0 < small_s < 4.0
    assert now_s == pytest.approx(17.0, rel=0.1)
    assert large_s == pytest.approx(33.0, rel=0.15)


def test_a_state_that_never_changed_says_nothing_of_another() -> None:
    known = HoldUp().updated(3.0, 1e9).updated(4.0, 1e9)
    assert known.seconds(50e9) == known.seconds(1e9) == pytest.approx(3.3)


def test_a_hold_up_is_never_negative_and_has_a_bound() -> None:
    known = HoldUp().updated(2.0, 1e9).updated(10.0, 2e9).updated(19.0, 3e9)
    assert known.seconds(0.0) == 0.0
    assert known.seconds(1e15) == 120.0


def test_what_growing_costs_is_not_learned_from_executors_that_leave() -> None:
    """5 s for the one that came, nothing for the one that left: not 3.5 s for both."""
    recent = query((102.0, 1, [BEFORE]), (112.0, 2, [HELD_UP, AFTER]))
    growing, shrinking = learn_hold_ups(HoldUp(), HoldUp(), KNOWN, recent, ASKED_S)
    assert growing.mean_s == pytest.approx(5.0)
    assert shrinking.mean_s is None
    last = Batch(4, 116.0, 0.22, 2_000)
    left = query((112.0, 2, []), (120.0, 1, [last]))
    growing, shrinking = learn_hold_ups(growing, shrinking, KNOWN, left, ASKED_S)
    assert growing.mean_s == pytest.approx(5.0)
    assert shrinking.mean_s == 0.0


def test_a_batch_that_is_long_by_itself_says_nothing_of_a_hold_up() -> None:
    """120,000 records take 13 s on one executor, six triggers: no measurement is not 0 s."""
    flooded = Batch(2, 103.0, 13.5, 120_000), Batch(3, 117.0, 13.0, 120_000)
    recent = query((102.0, 1, [BEFORE]), (132.0, 2, list(flooded)))
    assert learn_hold_up(None, KNOWN, recent, ASKED_S) is None
