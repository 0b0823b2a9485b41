"""ContTune: what it learns, the big step up and the small one down."""

from __future__ import annotations

import pytest

from penstock.core.knowledge import Knowledge
from penstock.core.model import Batch, Decision, Fleet, OperatorSample, Reason, Snapshot, Step
from penstock.policies.conttune import (
    LATEST,
    MOST_SIZES,
    Ability,
    ContTune,
    ContTuneMemory,
    capacity_means,
)

#: Measured by the authors: parallelism and processing ability (records/s) of the mapper of
#: Nexmark's query 1, as in the README of their repository.
MAPPER = {
    1: 529_573, 2: 966_817, 4: 1_829_696, 6: 2_535_503, 7: 2_936_889, 8: 3_118_478, 10: 3_721_099,
    13: 4_624_714, 15: 4_967_828, 20: 6_350_677, 21: 6_465_250, 25: 7_089_387, 26: 7_476_392,
}  # fmt: skip


def seen(
    at_s: float,
    *,
    size: int = 8,
    active: int | None = None,
    arrival_rps: float = 30e3,
    busy: float = 0.4,
    held_back: float | None = 0.0,
) -> Snapshot:
    """One operator that reads all that arrives, one slot per executor."""
    active = size if active is None else active
    read = OperatorSample(
        "read",
        input_rps=arrival_rps,
        busy_fraction=busy,
        backpressured_fraction=held_back,
        tasks=active,
    )
    return Snapshot(at_s, Fleet(size, active, active), arrival_rps=arrival_rps, operators=(read,))


def drive(
    *snapshots: Snapshot, memory: ContTuneMemory | None = None, policy: ContTune | None = None
) -> Decision:
    """The last decision, of a policy that begins with what it remembers."""
    knowledge = Knowledge()
    before = Decision.of(8, Reason("known", "from an earlier run"), memory=memory)
    knowledge.remember(Step(0.0, None, before))
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
        decision = (policy or ContTune()).decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
    return decision


def a_minute(memory: ContTuneMemory | None = None, **shown: float) -> Decision:
    """The decision after a minute of the same."""
    looks = [seen(at_s, **shown) for at_s in (0.0, 20.0, 40.0, 60.0)]  # type: ignore[arg-type]
    return drive(*looks, memory=memory)


def known(**abilities: float) -> ContTuneMemory:
    """A memory of ``n4=40e3, n8=75e3``; no further observation is due within the minute."""
    sizes = tuple(Ability(int(name[1:]), (rps,)) for name, rps in abilities.items())
    return ContTuneMemory(sizes, observed_at_s=30.0)


def test_the_process_finds_the_parallelism_that_the_authors_give_for_their_measurements() -> None:
    # Their README: 10.64, so 11, for 4 million records per second.
    sizes = [Ability(size, (float(rps),)) for size, rps in MAPPER.items()]
    candidates = range(1, 27)
    means = capacity_means(sizes, candidates)
    fits = [n for n, rps in zip(candidates, means, strict=True) if rps >= 4e6]
    assert fits[0] == 11


def test_the_process_comes_close_to_what_was_measured_and_expects_nothing_far_from_it() -> None:
    sizes = [Ability(4, (40e3,)), Ability(8, (75e3,))]
    near, far = capacity_means(sizes, [4, 8]), capacity_means(sizes, [60])
    assert near == pytest.approx([40e3, 75e3], rel=0.01)
    assert far == pytest.approx([0.0], abs=1.0)


def test_a_size_is_known_by_the_mean_of_its_latest_observations() -> None:
    memory = ContTuneMemory()
    for number in range(LATEST + 2):
        memory = memory.learn(4, 1000.0 * number, float(number))
    # 2, 3, 4, 5 and 6 thousand are left of seven
    assert memory.sizes == (Ability(4, (2e3, 3e3, 4e3, 5e3, 6e3)),)
    assert memory.sizes[0].mean_rps == 4e3


def test_it_forgets_the_size_that_is_farthest_from_the_present_one() -> None:
    memory = ContTuneMemory()
    for size in range(1, MOST_SIZES + 2):
        memory = memory.learn(size, 1e3, 0.0)
    sizes = {one.executors for one in memory.sizes}
    assert len(sizes) == MOST_SIZES
    assert 1 not in sizes


def test_ability_is_what_the_fleet_would_do_if_it_were_always_busy() -> None:
    # 30,000 records/s keep it busy for 40 % of the time: 75,000
    memory = a_minute().memory
    assert [(one.executors, one.mean_rps) for one in memory.sizes] == [(8, pytest.approx(75e3))]
    assert memory.observed_at_s == 40.0


def test_it_observes_once_per_window() -> None:
    looks = [seen(20.0 * turn, arrival_rps=30e3, busy=0.7) for turn in range(10)]
    # after 40, 100 and 160 s
    assert len(drive(*looks).memory.sizes[0].observed_rps) == 3


def test_too_large_a_fleet_shrinks_to_the_least_that_was_learned_to_do() -> None:
    # 30,000 x 1.33 = 39,900: four executors were seen to do 40,200, three 31,000.
    decision = a_minute(known(n3=31e3, n4=40.2e3, n8=75e3))
    assert decision.target_executors == 4
    assert decision.expected_rps == pytest.approx(40.2e3, rel=0.01)
    assert (
        decision.reasons[0].text
        == "30.0 k/s and 33% on top fit 4 executors, learned from 3 sizes: 4 executors instead of 8"
    )


def test_far_from_what_it_knows_it_does_as_ds2_does() -> None:
    # 10,000 x 1.33 need 1.4 of 9,375 each: 2. The process, which knows 12 and 16 only, says that
    # sizes far below 12 can do it; none of them is within 3 of 12.
    decision = a_minute(known(n12=110e3, n16=150e3), size=16, arrival_rps=10e3, busy=1 / 15)
    assert decision.target_executors == 2
    assert "as DS2 estimates it" in decision.reasons[0].text
    assert decision.expected_rps is None


def test_with_a_distance_of_0_only_sizes_that_were_seen_are_taken_from_memory() -> None:
    memory = known(n3=31e3, n5=50e3, n8=75e3)
    looks = [seen(at_s) for at_s in (0.0, 20.0, 40.0, 60.0)]
    # 39,900 fit 4 by the process, which was not seen: DS2 says ceil(8 x 0.4 x 1.33) = 5
    strict = drive(*looks, memory=memory, policy=ContTune(known_distance=0))
    assert strict.target_executors == 5
    assert drive(*looks, memory=memory).target_executors == 4


@pytest.mark.parametrize(
    ("memory", "target"),
    [
        (known(n8=75e3, n12=110e3), 12),  # the largest size known
        (known(n4=40e3, n8=75e3), 16),  # which is the present one: twice that
        (None, 16),
    ],
)
def test_too_small_a_fleet_grows_to_the_largest_size_known_or_twice_that(
    memory: ContTuneMemory | None, target: int
) -> None:
    decision = a_minute(memory, arrival_rps=90e3, busy=1.0, held_back=0.3)
    assert decision.target_executors == target


@pytest.mark.parametrize(
    ("busy", "held_back"),
    [
        (0.7, 0.0),  # neither too small nor too large
        (0.9, 0.0),  # busy, but nothing is held back
        (0.4, 0.3),  # held back, but not for want of executors
    ],
)
def test_it_changes_nothing_unless_both_symptoms_agree(busy: float, held_back: float) -> None:
    decision = a_minute(busy=busy, held_back=held_back)
    assert (decision.target_executors, decision.reasons[0].code) == (8, "right_size")


def test_a_change_by_less_than_a_tenth_is_not_made() -> None:
    # 16 executors, 15 would do: 16 / 15 = 1.07
    decision = a_minute(known(n15=100e3, n16=102e3), size=16, arrival_rps=75e3, busy=0.6)
    assert decision.target_executors == 16
    assert decision.reasons[0].text.endswith("fit 15 executors, learned from 2 sizes")


def test_a_fleet_that_has_just_changed_is_left_alone() -> None:
    looks = [seen(0.0, size=4), seen(20.0, size=4), seen(40.0), seen(60.0)]
    assert drive(*looks).reasons[0].code == "settling"
    starting = [seen(20.0 * turn, active=6) for turn in range(5)]
    assert drive(*starting).reasons[0].code == "settling"


def test_batches_that_overrun_their_trigger_are_held_back() -> None:
    # 1 - 10 / 12.5 = 0.2; the stage needs 0.9 of the fleet
    looks = [
        Snapshot(
            at_s,
            Fleet(4, 4, 4),
            trigger_interval_s=10.0,
            batches=(Batch(turn, at_s, 12.5, 900),),
            arrival_rps=900.0,
            operators=(OperatorSample("read", input_rps=900.0, busy_fraction=0.9, tasks=8),),
        )
        for turn, at_s in enumerate((0.0, 20.0, 40.0, 60.0))
    ]
    decision = drive(*looks)
    assert decision.target_executors == 8
    assert decision.reasons[0].evidence["held_back_fraction"] == pytest.approx(0.2)


def test_without_backpressure_or_batches_it_holds_and_keeps_what_it_knows() -> None:
    memory = known(n8=75e3)
    looks = [seen(at_s, held_back=None) for at_s in (0.0, 20.0)]
    decision = drive(*looks, memory=memory)
    assert decision.reasons[0].text == "holding 8 executors: backpressured_fraction not measured"
    assert decision.memory == memory
