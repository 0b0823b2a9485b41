"""Guards override decisions, and say why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.model import (
    Decision,
    ExecutorSample,
    Fleet,
    Limits,
    Reason,
    Receipt,
    Snapshot,
    Step,
)


def seen(at_s: float, fleet: int, **measured: float) -> Snapshot:
    return Snapshot(at_s=at_s, fleet=Fleet(fleet, fleet, fleet), arrival_rps=100.0, **measured)  # type: ignore[arg-type]


def wanted_size(executors: int) -> Decision:
    return Decision.of(executors, Reason("test", "a recommendation"))


def judge(
    limits: Limits, decision: Decision, snapshot: Snapshot, knowledge: Knowledge | None = None
) -> Decision:
    return Guards(limits).check(decision, snapshot, knowledge or Knowledge())


def after(*turns: tuple[float, int, int, bool], now_s: float) -> Knowledge:
    """Knowledge after turns of (at, fleet, wanted, accepted), at `now_s`."""
    knowledge = Knowledge.from_steps(
        Step(at, seen(at, fleet), wanted_size(wanted), Receipt(True) if moved else None)
        for at, fleet, wanted, moved in turns
    )
    knowledge.now_s = now_s
    return knowledge


def test_a_wish_inside_the_limits_passes_unchanged() -> None:
    decision = wanted_size(5)
    assert judge(Limits(), decision, seen(0.0, 4)) is decision


def test_bounds_have_the_last_word_even_over_a_cooldown() -> None:
    knowledge = after((0.0, 4, 20, True), now_s=10.0)
    overridden = judge(
        Limits(max_executors=8, cooldown_s=60.0), wanted_size(3), seen(10.0, 20), knowledge
    )
    assert overridden.target_executors == 8
    assert [reason.code for reason in overridden.reasons] == ["test", "cooldown", "max_executors"]
    assert overridden.wanted_executors == 3


def test_cooldown_ends_exactly_when_it_says() -> None:
    limits = Limits(cooldown_s=120.0)
    knowledge = after((0.0, 4, 6, True), now_s=119.0)
    assert judge(limits, wanted_size(8), seen(119.0, 6), knowledge).target_executors == 6
    knowledge.now_s = 120.0
    assert judge(limits, wanted_size(8), seen(120.0, 6), knowledge).target_executors == 8


def test_a_refused_rescale_starts_no_cooldown() -> None:
    knowledge = after((0.0, 4, 6, False), now_s=10.0)
    assert (
        judge(Limits(cooldown_s=120.0), wanted_size(6), seen(10.0, 4), knowledge).target_executors
        == 6
    )


def test_an_executor_that_was_started_is_kept_for_its_lifetime() -> None:
    """It grew from 2 to 5 at 100 s and shrank to 4 at 130 s; executors are kept for 60 s."""
    limits = Limits(min_lifetime_s=60.0)
    past = ((100.0, 2, 5, True), (130.0, 5, 4, True))
    held = judge(limits, wanted_size(2), seen(150.0, 4), after(*past, now_s=150.0))
    assert (held.target_executors, held.reasons[-1].code) == (4, "min_lifetime")
    assert held.reasons[-1].text == (
        "the fleet grew 50 s ago, executors are kept for at least 60 s"
    )
    later = judge(limits, wanted_size(2), seen(160.0, 4), after(*past, now_s=160.0))
    assert later.target_executors == 2
    grown = judge(limits, wanted_size(7), seen(150.0, 4), after(*past, now_s=150.0))
    assert grown.target_executors == 7


def test_stabilization_shrinks_to_the_largest_recent_wish() -> None:
    knowledge = after((0.0, 9, 7, False), (60.0, 9, 5, False), now_s=120.0)
    limits = Limits(stabilize_down_s=90.0)
    # 7 was wanted 120 s ago, which no longer counts; 5 at 60 s does, so 3 waits at 5.
    assert judge(limits, wanted_size(3), seen(120.0, 9), knowledge).target_executors == 5


def test_stabilization_grows_to_the_smallest_recent_wish_but_never_shrinks_by_it() -> None:
    knowledge = after((0.0, 5, 4, False), (60.0, 5, 6, False), now_s=90.0)
    assert (
        judge(
            Limits(stabilize_up_s=60.0), wanted_size(9), seen(90.0, 5), knowledge
        ).target_executors
        == 6
    )
    # With 4 wanted inside the window the fleet stays at 5: wanting to grow never shrinks it.
    assert (
        judge(
            Limits(stabilize_up_s=100.0), wanted_size(9), seen(90.0, 5), knowledge
        ).target_executors
        == 5
    )


def test_old_measurements_are_not_acted_upon() -> None:
    knowledge = Knowledge()
    knowledge.now_s = 200.0
    held = judge(Limits(max_age_s=60.0), wanted_size(9), seen(100.0, 4), knowledge)
    assert held.target_executors == 4
    assert held.reasons[-1].text == "holding 4 executors: measurements are 100 s old"


def test_the_step_limit_holds_in_both_directions() -> None:
    assert judge(Limits(max_step=2), wanted_size(9), seen(0.0, 4)).target_executors == 6
    assert judge(Limits(max_step=2), wanted_size(1), seen(0.0, 4)).target_executors == 2


def test_partitions_cap_the_fleet() -> None:
    snapshot = Snapshot(0.0, Fleet(4, 4, 4, cores_per_executor=4), arrival_rps=1.0, partitions=18)
    overridden = judge(Limits(), wanted_size(9), snapshot)
    # 18 tasks on 4 cores each feed ceil(18 / 4) = 5 executors.
    assert overridden.target_executors == 5
    assert overridden.reasons[-1].code == "parallelism_cap"


def test_the_dead_band_swallows_small_changes() -> None:
    limits = Limits(dead_band_fraction=0.2)
    assert judge(limits, wanted_size(11), seen(0.0, 10)).target_executors == 10
    assert judge(limits, wanted_size(12), seen(0.0, 10)).target_executors == 12


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_executors": 5, "max_executors": 3}, "max_executors must be at least min_executors"),
        ({"min_executors": -1}, "min_executors must be at least 0, not -1"),
        ({"cooldown_s": float("nan")}, "cooldown_s must be finite and not negative, not nan"),
        ({"max_step": 0}, "max_step must be at least 1, not 0"),
        ({"max_age_s": 0.0}, "max_age_s must be positive, not 0.0"),
    ],
)
def test_impossible_limits_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Limits(**values)  # type: ignore[arg-type]


@given(
    wanted=st.integers(0, 1000),
    fleet=st.integers(0, 40),
    least=st.integers(0, 10),
    span=st.integers(1, 30),
    cooldown=st.sampled_from([0.0, 60.0]),
    up=st.sampled_from([0.0, 60.0]),
    down=st.sampled_from([0.0, 300.0]),
    step=st.sampled_from([None, 1, 4]),
    band=st.sampled_from([0.0, 0.3]),
    turns=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40), st.booleans()), max_size=8),
)
def test_no_wish_ends_outside_the_bounds_and_every_bend_is_explained(
    wanted: int,
    fleet: int,
    least: int,
    span: int,
    cooldown: float,
    up: float,
    down: float,
    step: int | None,
    band: float,
    turns: list[tuple[int, int, bool]],
) -> None:
    limits = Limits(
        min_executors=least,
        max_executors=least + span,
        cooldown_s=cooldown,
        stabilize_up_s=up,
        stabilize_down_s=down,
        max_step=step,
        dead_band_fraction=band,
    )
    past = [(15.0 * i, then, before, moved) for i, (then, before, moved) in enumerate(turns)]
    now_s = 15.0 * len(turns)
    overridden = judge(limits, wanted_size(wanted), seen(now_s, fleet), after(*past, now_s=now_s))
    assert least <= overridden.target_executors <= least + span
    assert overridden.wanted_executors == wanted
    assert (overridden.target_executors == wanted) or len(overridden.reasons) > 1


@pytest.mark.parametrize(
    ("limits", "wanted", "fleet", "text"),
    [
        (Limits(max_executors=1), 2, 1, "2 executors wanted, 1 is the most allowed"),
        (Limits(), 0, 1, "0 executors wanted, 1 is the fewest allowed"),
        (Limits(min_executors=3), 1, 3, "1 executor wanted, 3 are the fewest allowed"),
        (Limits(max_step=1), 4, 1, "4 is more than 1 away from 1 executor"),
    ],
)
def test_one_executor_is_counted_as_one(limits: Limits, wanted: int, fleet: int, text: str) -> None:
    decision = judge(limits, wanted_size(wanted), seen(0.0, fleet))
    assert decision.reasons[-1].text == text


def test_a_fleet_of_none_does_not_stay_where_nothing_can_be_measured() -> None:
    """Without executors no batch ends: the load would stay unknown for ever."""
    limits = Limits(min_executors=0)
    blind = Snapshot(at_s=0.0, fleet=Fleet(0, 0, 0))
    decision = judge(limits, wanted_size(0), blind)
    assert (decision.target_executors, decision.wanted_executors) == (1, 0)
    assert decision.reasons[-1].text == "0 executors measure nothing: 1 until the load is known"
    idle = Snapshot(at_s=0.0, fleet=Fleet(0, 0, 0), arrival_rps=0.0)
    assert judge(limits, wanted_size(0), idle).target_executors == 0
    assert judge(Limits(min_executors=2), wanted_size(0), blind).target_executors == 2


def test_heap_pressure_is_said_at_the_maximum_too() -> None:
    """Four of at most four executors collect garbage for 20 % of their time: nothing can grow."""
    full = tuple(ExecutorSample(str(n), 0.0, gc_fraction=0.2) for n in range(4))
    snapshot = Snapshot(0.0, Fleet(4, 4, 4), executors=full)
    for most, codes in ((4, ["at_maximum", "heap_pressure"]), (5, ["at_maximum"])):
        late = Decision.of(4, Reason("at_maximum", "late"))
        decision = judge(Limits(max_executors=most), late, snapshot)
        assert [reason.code for reason in decision.reasons] == codes
        assert decision.target_executors == 4


@pytest.mark.parametrize(
    ("now_s", "wanted", "target"),
    [
        (1_044.0, 1, 4),  # 16 s are left that are paid for
        (1_045.0, 1, 3),  # the last quarter of the minute of the first executor
        (1_075.0, 1, 1),  # the spans of the others end as well
        (1_044.0, 5, 5),  # growing is free
    ],
)
def test_executors_leave_when_the_span_that_is_paid_for_ends(
    now_s: float, wanted: int, target: int
) -> None:
    began_s = {"1": 1_000.0, "2": 1_030.0, "3": 1_030.0, "4": 1_030.0}
    executors = tuple(ExecutorSample(name, at_s) for name, at_s in began_s.items())
    snapshot, knowledge = Snapshot(now_s, Fleet(4, 4, 4), executors=executors), Knowledge()
    knowledge.now_s = now_s
    judged = judge(Limits(billing_s=60.0), wanted_size(wanted), snapshot, knowledge)
    assert judged.target_executors == target
    # Executors that are still starting are not paid for.
    starting = Snapshot(now_s, Fleet(6, 4, 4), executors=executors)
    cancelled = judge(Limits(billing_s=60.0), wanted_size(4), starting, knowledge)
    assert cancelled.target_executors == 4
