"""Thresholds on filtered cpu and memory, with worked numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.core.journal import FileJournal, read_tail
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Fleet, Receipt, Snapshot, Step
from penstock.core.protocols import InstantActuator
from penstock.policies.thresholds.thresholds import FilterMemory, Thresholds
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import PolicySpec, policy_text, read_policy_spec, wire

Metric = float | None

METRICS: list[tuple[Literal["cpu_fraction", "memory_fraction"], ...]] = [
    ("cpu_fraction", "memory_fraction"),
    ("memory_fraction",),
    ("memory_fraction", "cpu_fraction"),
]


def seen(
    at_s: float,
    cpus: Sequence[Metric],
    *,
    memory: Metric = 0.3,
    arrival_rps: Metric = 100.0,
    target: int | None = None,
    active: int | None = None,
) -> Snapshot:
    executors = tuple(
        ExecutorSample(str(i), 0.0, cpu_fraction=cpu, memory_fraction=memory)
        for i, cpu in enumerate(cpus)
    )
    count = len(cpus)
    fleet = Fleet(count if target is None else target, count, count if active is None else active)
    return Snapshot(at_s, fleet, executors=executors, arrival_rps=arrival_rps)


def drive(policy: Thresholds, snapshots: list[Snapshot]) -> list[Decision]:
    """The decisions of a policy over a run in which nobody obeys it."""
    knowledge = Knowledge()
    decisions = []
    for snapshot in snapshots:
        knowledge.learn(snapshot, snapshot.at_s)
        decision = policy.decide(snapshot, knowledge)
        knowledge.remember(Step(snapshot.at_s, snapshot, decision))
        decisions.append(decision)
    return decisions


def series(count: int, cpu: Callable[[int], float], executors: int = 4) -> list[Snapshot]:
    return [seen(0.5 * i, [cpu(i)] * executors) for i in range(count)]


@pytest.mark.parametrize(
    ("cpus", "memory", "target", "code"),
    [
        ([0.9, 0.9, 0.75], 0.3, 4, "above_threshold"),
        ([0.1, 0.1, 0.1], 0.85, 4, "above_threshold"),
        ([0.4, 0.4, 0.4], 0.3, 2, "below_threshold"),
        ([0.4, 0.4, 0.4], 0.5, 3, "inside_band"),
        ([0.8, 0.8, 0.8], 0.3, 3, "inside_band"),
    ],
)
def test_pure_moves_by_one_when_any_is_high_or_all_are_low(
    cpus: list[Metric], memory: float, target: int, code: str
) -> None:
    snapshot = seen(0.0, cpus, memory=memory)
    decision = Thresholds(filter="pure").decide(snapshot, Knowledge())
    assert (decision.target_executors, decision.reasons[0].code) == (target, code)


def test_pure_asks_again_while_executors_are_on_their_way_and_so_overshoots() -> None:
    snapshot = seen(0.0, [0.9] * 4, target=6, active=4)
    assert Thresholds(filter="pure").decide(snapshot, Knowledge()).target_executors == 7


def test_ekf_does_not_ask_again_for_executors_that_are_on_their_way() -> None:
    run = [seen(0.5 * i, [0.95] * 4, target=9, active=4) for i in range(60)]
    assert {d.target_executors for d in drive(Thresholds(), run)} == {9}


def test_ekf_foresees_a_jump_that_its_saturated_executors_cannot_show() -> None:
    # 40 records/s are a whole executor; the rate wobbles by a tenth around 20, then is 200.
    rates = [20.0 + 2.0 * (-1) ** i for i in range(60)] + [200.0]
    run = [seen(0.5 * i, [min(1.0, rate / 40.0)], arrival_rps=rate) for i, rate in enumerate(rates)]
    decision = drive(Thresholds(), run)[-1]
    assert decision.reasons[0].evidence["cpu_fraction"] > 3.0
    assert 4 <= decision.target_executors <= 7  # 200 / 40 / 0.8 = 6.25


def test_a_rate_that_says_nothing_yet_cannot_throw_the_filter_off() -> None:
    cpus = [0.50, 0.58] * 30
    rates = [10.01, 10.0] * 30 + [1000.0]  # cpu seems to fall as the rate rises
    run = [
        seen(0.5 * i, [cpu], arrival_rps=rate)
        for i, (cpu, rate) in enumerate(zip([*cpus, 0.6], rates, strict=True))
    ]
    decision = drive(Thresholds(), run)[-1]
    assert 0.5 < decision.reasons[0].evidence["cpu_fraction"] < 0.6


@pytest.mark.parametrize("kind", ["pure", "gauss", "ekf"])
def test_a_metric_that_nobody_reports_means_hold(kind: str) -> None:
    policy = msgspec.convert({"filter": kind}, Thresholds)
    decision = policy.decide(seen(0.0, [None, None], target=7), Knowledge())
    assert decision.target_executors == 7
    assert decision.reasons[0].text == "holding 7 executors: cpu_fraction not measured"


def test_the_kalman_filter_needs_the_arrival_rate() -> None:
    decision = Thresholds().decide(seen(0.0, [0.9], arrival_rps=None), Knowledge())
    assert decision.reasons[0].text == "holding 1 executor: arrival_rps not measured"


def test_a_metric_that_is_not_asked_for_may_be_missing() -> None:
    policy = Thresholds(filter="pure", metrics=("cpu_fraction",))
    assert policy.decide(seen(0.0, [0.9], memory=None), Knowledge()).target_executors == 2


def test_an_executor_without_a_sample_is_left_out_of_the_mean() -> None:
    decision = Thresholds(filter="pure").decide(seen(0.0, [0.9, None]), Knowledge())
    assert decision.reasons[0].evidence["cpu_fraction"] == 0.9


def test_gauss_weighs_the_past_by_its_age() -> None:
    decision = drive(Thresholds(filter="gauss"), [seen(0.0, [0.5]), seen(3.0, [0.9])])[-1]
    weight = exp(-0.5)  # one standard deviation of 3 s ago
    expected = (0.9 + weight * 0.5) / (1 + weight)
    assert decision.reasons[0].evidence["cpu_fraction"] == pytest.approx(expected)
    assert decision.target_executors == 1


def test_gauss_ignores_a_spike_that_pure_follows() -> None:
    run = series(60, lambda i: 0.95 if i == 40 else 0.6)
    assert {d.target_executors for d in drive(Thresholds(filter="pure"), run)} == {4, 5}
    assert {d.target_executors for d in drive(Thresholds(filter="gauss"), run)} == {4}


def test_gauss_keeps_no_more_past_than_its_kernel_sees() -> None:
    memory = drive(Thresholds(filter="gauss"), series(400, lambda _: 0.6))[-1].memory
    assert len(memory.times_s) == 37  # 18 s at 2 Hz, and the present
    assert {len(series) for one in memory.past.values() for series in one} == {37}


def test_gauss_filters_each_executor_and_then_takes_the_mean() -> None:
    run = [seen(0.0, [0.9]), seen(3.0, [0.9, 0.1])]
    decision = drive(Thresholds(filter="gauss"), run)[-1]
    # Who has just joined has no past that could hold the mean up: (0.9 + 0.1) / 2.
    assert decision.reasons[0].evidence["cpu_fraction"] == pytest.approx(0.5)


def test_gauss_forgets_the_past_of_who_has_left() -> None:
    run = [seen(0.0, [0.5, 0.1]), seen(3.0, [0.5])]
    decision = drive(Thresholds(filter="gauss"), run)[-1]
    assert decision.reasons[0].evidence["cpu_fraction"] == pytest.approx(0.5)
    assert list(decision.memory.past) == ["0"]


def test_gauss_starts_anew_when_the_clock_is_set_back_or_a_sample_is_missing() -> None:
    for run in (
        [seen(9.0, [0.9]), seen(3.0, [0.5])],
        [seen(0.0, [0.9, 0.5]), seen(0.5, [None, 0.5]), seen(1.0, [0.5, 0.5])],
    ):
        decision = drive(Thresholds(filter="gauss"), run)[-1]
        assert decision.reasons[0].evidence["cpu_fraction"] == pytest.approx(0.5)


def test_ekf_waits_for_dead_time_and_ease_in() -> None:
    decisions = drive(Thresholds(), series(60, lambda _: 0.95))
    codes = [decision.reasons[0].code for decision in decisions]
    assert codes == ["bootstrapping"] * 40 + ["above_threshold"] * 20  # 20 s at 2 Hz


def test_ekf_sizes_at_once_on_the_way_up() -> None:
    # 4 executors at 0.95 carry a load of 3.8: 3.8 / 0.8 = 4.75
    assert drive(Thresholds(), series(60, lambda _: 0.95))[-1].target_executors == 5
    # 10 at 0.95: 9.5 / 0.8 = 11.9
    assert drive(Thresholds(), series(60, lambda _: 0.95, 10))[-1].target_executors == 12


def test_ekf_sizes_at_once_on_the_way_down() -> None:
    # 10 executors at 0.2 (memory 0.3 is higher) carry 3.0: 3.0 / 0.8 = 3.75
    assert drive(Thresholds(), series(60, lambda _: 0.2, 10))[-1].target_executors == 4


def test_ekf_ignores_noise_that_pure_follows() -> None:
    def noisy(i: int) -> float:
        return 0.85 if i % 2 else 0.55

    run = series(100, noisy)
    assert {d.target_executors for d in drive(Thresholds(filter="pure"), run)} == {4, 5}
    assert {d.target_executors for d in drive(Thresholds(noise=0.02), run)} == {4}


def test_ekf_learns_how_cpu_follows_the_rate_and_runs_ahead_of_plain_filtering() -> None:
    def load(i: int) -> float:
        return 100.0 if (i // 20) % 2 == 0 else 150.0

    run = [
        seen(0.5 * i, [load(i) / 200 + 0.01 * (-1) ** i] * 2, arrival_rps=load(i))
        for i in range(141)
    ]
    last = drive(Thresholds(noise=0.01), run)[-1]
    _, b = last.memory.fits[0].coefficients()
    assert b == pytest.approx(0.01, rel=0.1)  # half the rate each: 0.25 more cpu for 25 more
    assert last.reasons[0].evidence["cpu_fraction"] == pytest.approx(0.75, abs=0.03)


def test_ekf_forgets_executors_that_left() -> None:
    run = [seen(0.5 * i, [0.6] * (8 if i < 10 else 2)) for i in range(20)]
    assert set(drive(Thresholds(), run)[-1].memory.tracks) == {"0", "1"}


def test_ekf_counts_newcomers_in_the_sum_but_not_in_the_mean() -> None:
    run = series(60, lambda _: 0.9)
    # Four old ones at 0.9, four new ones that do nothing yet: 3.6 / 0.8 = 4.5, so 8 are enough.
    run.append(seen(30.0, [0.9] * 4 + [0.0] * 4))
    decision = drive(Thresholds(), run)[-1]
    assert decision.reasons[0].evidence["cpu_fraction"] == pytest.approx(0.9, abs=0.05)
    assert decision.target_executors == 8


def test_ekf_can_be_made_to_wait_until_newcomers_are_known() -> None:
    run = [seen(0.5 * i, [0.9] * 4) for i in range(60)]
    run += [seen(0.5 * i, [0.9] * 4 + [0.5] * 4) for i in range(60, 110)]
    decisions = drive(Thresholds(waits_for_newcomers=True), run)
    codes = [decision.reasons[0].code for decision in decisions]
    # Twenty seconds for the first four from second 0, then twenty for the newcomers of second 30.
    assert codes[39] == "bootstrapping"
    assert codes[40] == codes[59] == "above_threshold"
    assert codes[60:100] == ["bootstrapping"] * 40
    assert codes[100] == "inside_band"
    assert decisions[60].reasons[0].text.endswith("the filter has run 0 of 20 s")


def test_ekf_sizes_for_the_load_that_it_is_told_to() -> None:
    # 4 executors at 0.95 carry a load of 3.8: 3.8 / 0.5 = 7.6
    policy = Thresholds(sized_for_fraction=0.5)
    assert drive(policy, series(60, lambda _: 0.95))[-1].target_executors == 8


def test_ekf_takes_the_known_effect_of_the_rate_instead_of_learning_it() -> None:
    # 20 records/s for 4 at 0.5; then 200: 180 / 4 more for each, at 0.02 cpu for each of them.
    run = [seen(0.5 * i, [0.5] * 4, arrival_rps=20.0) for i in range(60)]
    run.append(seen(30.0, [0.5] * 4, arrival_rps=200.0))
    policy = Thresholds(rate_effects=(0.02, 0.0))
    evidence = drive(policy, run)[-1].reasons[0].evidence
    assert evidence["cpu_fraction"] == pytest.approx(0.5 + 0.9 * 0.9, abs=0.02)


def test_known_effects_must_be_as_many_as_metrics() -> None:
    with pytest.raises(ConfigError, match=r"one number per metric \(2\), not 1"):
        Thresholds(rate_effects=(0.02,))


def test_a_warm_start_asks_for_the_mean_of_the_last_run_once() -> None:
    decisions = drive(Thresholds(initial_executors=6), series(2, lambda _: 0.6))
    assert [d.target_executors for d in decisions] == [6, 4]
    assert decisions[0].reasons[0].text == "warm start with 6 executors"


class HandMade(InstantActuator):
    """A job as sensor and actuator: executors of one run, all at the same cpu."""

    def __init__(self, started_at_s: float, executors: int, cpu: float = 0.6) -> None:
        self.started_at_s, self.executors, self.cpu = started_at_s, executors, cpu

    def read(self, now_s: float) -> Snapshot:
        count = self.executors
        samples = tuple(
            ExecutorSample(str(i), self.started_at_s, cpu_fraction=self.cpu, memory_fraction=0.3)
            for i in range(count)
        )
        # The rate wobbles, so that the filter learns what it does to the metrics.
        arrival_rps = 100.0 + now_s % 2.0
        return Snapshot(
            now_s, Fleet(count, count, count), executors=samples, arrival_rps=arrival_rps
        )

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        self.executors = target_executors
        return Receipt(accepted=True)


def continued(path: Path, job: HandMade, first_s: float, turns: int, **parameters: Any) -> Step:
    """The last step of a controller that continues a journal, as `attach` does."""
    spec = PolicySpec.of(replace(Thresholds(), **parameters))
    past = list(read_tail(path)) if path.exists() else []
    with FileJournal(path, journal_header(spec, Goal())) as journal:
        controller = wire(spec, job, job, journal=journal, past=past)
        for turn in range(turns):
            step = controller.turn(first_s + 0.5 * turn)
    return step


def test_the_next_run_starts_with_the_mean_fleet_of_the_journal_it_continues(
    tmp_path: Path,
) -> None:
    # 40 turns with 4 executors, then 120 with 8: 7 on average.
    path = tmp_path / "job.jsonl"
    first = HandMade(started_at_s=900.0, executors=4)
    continued(path, first, 1000.0, 40)
    first.executors = 8
    last = continued(path, first, 1020.0, 120)
    assert last.decision.reasons[0].code == "inside_band"
    # The job starts again an hour later, with executors of the same names.
    second = HandMade(started_at_s=4600.0, executors=1)
    step = continued(path, second, 4610.0, 1)
    assert step.decision.target_executors == second.executors == 7
    text = step.decision.reasons[0].text
    assert text == "warm start with 7 executors, the mean of the last run"
    memory = step.decision.memory
    assert memory.tracks == {}
    assert len(memory.fits) == 2
    # From then on it is a run like any other, with filters that start afresh.
    step = continued(path, second, 4610.5, 20)
    assert step.decision.reasons[0].code == "bootstrapping"


@pytest.mark.parametrize(
    ("started_at_s", "first_s", "parameters"),
    [
        pytest.param(900.0, 4600.0, {}, id="the same executors: only the scaler was restarted"),
        pytest.param(1025.0, 1029.0, {}, id="no pause: the fleet was replaced"),
        pytest.param(4590.0, 4600.0, {"warm_start": False}, id="not wanted"),
    ],
)
def test_what_is_no_new_run_is_no_warm_start(
    tmp_path: Path, started_at_s: float, first_s: float, parameters: dict[str, Any]
) -> None:
    path = tmp_path / "job.jsonl"
    continued(path, HandMade(900.0, 8), 1000.0, 40)
    step = continued(path, HandMade(started_at_s, 2), first_s, 1, **parameters)
    assert step.decision.target_executors == 2
    assert step.decision.reasons[0].code != "warm_start"


def test_a_fleet_given_by_hand_wins_over_the_last_run(tmp_path: Path) -> None:
    path = tmp_path / "job.jsonl"
    continued(path, HandMade(900.0, 8), 1000.0, 40, initial_executors=5)
    step = continued(path, HandMade(4590.0, 2), 4600.0, 1, initial_executors=5)
    assert step.decision.target_executors == 5


def _shuffling(network: Metric, disk: Metric = None, cpu: float = 0.6) -> Snapshot:
    executors = tuple(
        ExecutorSample(
            str(i),
            0.0,
            cpu_fraction=cpu,
            memory_fraction=0.3,
            network_bytes_per_s=network,
            disk_bytes_per_s=disk,
        )
        for i in range(4)
    )
    return Snapshot(0.0, Fleet(4, 4, 4), executors=executors, arrival_rps=100.0)


@pytest.mark.parametrize(
    ("snapshot", "target", "words"),
    [
        (_shuffling(60e6, 1e6), 5, "network 60.0 MB/s is above 50.0 MB/s"),
        (_shuffling(20e6, 90e6), 5, "disk 90.0 MB/s is above 80.0 MB/s"),
        (_shuffling(20e6, 1e6, cpu=0.1), 4, "network 20.0 MB/s is between 10.0 MB/s and 50.0 MB/s"),
        (_shuffling(9e6, 1e6, cpu=0.1), 3, "network 9.0 MB/s is below 10.0 MB/s"),
    ],
)
def test_network_and_disk_have_thresholds_of_their_own(
    snapshot: Snapshot, target: int, words: str
) -> None:
    policy = Thresholds(filter="pure", network_bytes=(10e6, 50e6), disk_bytes=(5e6, 80e6))
    decision = policy.decide(snapshot, Knowledge())
    assert decision.target_executors == target
    assert words in decision.reasons[0].text
    sample = snapshot.executors[0]
    evidence = decision.reasons[0].evidence
    assert evidence["network_bytes_per_s"] == pytest.approx(sample.network_bytes_per_s)


def test_ekf_sizes_by_the_network_too() -> None:
    # 4 x 75 MB/s at no more than 50 MB/s each: 6 executors.
    policy = Thresholds(network_bytes=(10e6, 50e6))
    run = [msgspec.structs.replace(_shuffling(75e6), at_s=0.5 * i) for i in range(60)]
    assert drive(policy, run)[-1].target_executors == 6
    assert drive(Thresholds(), run)[-1].target_executors == 4


def test_a_metric_that_counts_has_to_be_measured() -> None:
    policy = Thresholds(filter="pure", network_bytes=(10e6, 50e6))
    reason = policy.decide(_shuffling(None), Knowledge()).reasons[0]
    assert reason.text == "holding 4 executors: network_bytes_per_s not measured"


@pytest.mark.parametrize("band", [(10e6,), (50e6, 10e6), (-1.0, 5.0), (1.0, 2.0, 3.0)])
def test_a_band_is_a_lower_and_a_higher_threshold(band: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="network_bytes must be a lower and a higher threshold"):
        Thresholds(network_bytes=band)


def test_bands_can_be_written_on_the_command_line() -> None:
    spec = read_policy_spec("thresholds:network=10M|50M")
    assert spec.policy == Thresholds(network_bytes=(10e6, 50e6))
    assert policy_text(spec.policy) == "thresholds:network=10M|50M"


@pytest.mark.parametrize("kind", ["gauss", "ekf"])
def test_a_restart_with_other_metrics_starts_the_filter_anew(kind: Literal["gauss", "ekf"]) -> None:
    knowledge = Knowledge()
    for metrics in METRICS:
        policy = Thresholds(filter=kind, metrics=metrics)
        snapshot = seen(0.0, [0.6], memory=0.6)
        decision = policy.decide(snapshot, knowledge)
        knowledge.remember(Step(0.0, snapshot, decision))
        assert decision.target_executors == 1
        width = len(decision.memory.fits or decision.memory.past["0"])
        assert width == len(metrics)


@given(st.lists(st.floats(0.0, 1.0), min_size=45, max_size=80), st.integers(1, 12))
def test_ekf_decides_the_same_after_a_restart(cpus: list[float], executors: int) -> None:
    run = [seen(0.5 * i, [cpu] * executors) for i, cpu in enumerate(cpus)]
    decisions = drive(Thresholds(), run)
    wire = msgspec.json.encode(decisions[-2].memory)
    assert msgspec.json.decode(wire, type=FilterMemory) == decisions[-2].memory
