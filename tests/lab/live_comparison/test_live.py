"""The live comparison: how a run is measured, forecast, kept and taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import msgspec
import pytest
from docs import results, results_live

from penstock.cli.app import main
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.journal import MemoryJournal
from penstock.core.knowledge import Knowledge
from penstock.core.model import ExecutorSample, Fleet, Snapshot
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.lab.live_comparison import contest
from penstock.lab.live_comparison.contest import fitted_job, forecast
from penstock.lab.live_comparison.observer import (
    Committed,
    ExecutorLifetime,
    Observation,
    levels,
    rescaled,
    startups_s,
)
from penstock.lab.live_comparison.trial import (
    Trial,
    WaitingIsWork,
    contestants,
    entry_of,
    find_contestant,
    measured,
)
from penstock.policies.kubernetes.hpa import Hpa
from penstock.settings.policy_spec import read_policy_spec
from penstock.simulation.engines.engine import Level
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.plan import DemoPlan

PLAN = DemoPlan(load_s=110, full_peak_rps=2600.0)
FIXED_S, CORE_S = 0.5, 0.001


def observed(
    rates_rps: Sequence[float], lives: list[ExecutorLifetime], *, fixed_s: float = FIXED_S
) -> Observation:
    """A run whose batches cost `fixed_s` and a millisecond per record on each executor."""
    arrived = [(0.0, 0)]
    for second, rate in enumerate(rates_rps):
        arrived.append((second + 1.0, arrived[-1][1] + round(rate)))
    span_s = float(len(rates_rps))
    seen = Observation(span_s, arrived, [], lives)
    at_s, done, batches = sizes.TRIGGER_S, 0, []
    while at_s < span_s:
        there = arrived[int(at_s)][1]
        waves = ceil(PLAN.partitions / seen.fleet_at(at_s))
        duration_s = fixed_s + CORE_S * (there - done) * waves / PLAN.partitions
        batches.append(Committed(at_s, duration_s, there - done, there))
        done = there
        at_s = max(at_s + duration_s, sizes.TRIGGER_S * (at_s // sizes.TRIGGER_S + 1.0))
    return msgspec.structs.replace(seen, batches=batches)


def trial(name: str, number: int, executors: int = 3) -> Trial:
    lives = [ExecutorLifetime(str(one), -10.0, -5.0, None) for one in range(executors)]
    seen = observed(PLAN.rates_rps(), lives)
    facts = {"cores": "2", "memory": "8 GiB", "system": "Linux", "python": "3", "pyspark": "4"}
    facts |= {"java": "17", "kafka": "4", "penstock": "0"}
    return Trial(name, number, f"2026-11-16 0{number}:00", PLAN, facts, seen)


def test_a_run_is_measured_by_processes_arrivals_and_commits() -> None:
    """Ten records a second; what came in two seconds is committed one second after them.

    The first of them has then waited 3 s, the last 1 s, the middle one 2 s. Those of the last two
    seconds still wait and count by their age, 0 to 2 s: the middle of all is a tenth lower.
    """
    arrived = [(float(second), 10 * second) for second in range(21)]
    batches = [Committed(2.0 * n, 1.0, 20, 20 * n) for n in range(1, 10)]
    lives = [
        ExecutorLifetime("1", -9.0, -5.0, None, failed_tasks=1),
        ExecutorLifetime("2", 5.0, 8.0, 15.0, failed_tasks=2),
    ]
    seen = Observation(20.0, arrived, batches, lives)
    found = measured(msgspec.structs.replace(trial("static", 1), observation=seen))
    assert found.executor_s == pytest.approx(20.0 + 10.0)
    assert found.p50_s == pytest.approx(1.9, abs=0.01)
    assert found.p95_s == pytest.approx(2.9, abs=0.02)
    assert found.late_fraction == 0.0
    assert (found.rescales, found.moved_executors, found.failed_tasks) == (2, 2, 3)


def test_records_that_came_before_the_run_are_not_its_own() -> None:
    """A hundred records wait when the run begins; only those that come later are scored."""
    arrived = [(0.0, 100), (10.0, 200)]
    seen = Observation(
        10.0, arrived, [Committed(0.0, 4.0, 100, 100)], [ExecutorLifetime("1", -9, -5, None)]
    )
    found = measured(msgspec.structs.replace(trial("static", 1), observation=seen))
    assert found.p95_s == pytest.approx(9.5)  # nothing of it is done: all count by their age


def test_executors_that_come_together_are_one_rescale() -> None:
    lives = [ExecutorLifetime("1", -9.0, -5.0, None)]
    lives += [ExecutorLifetime(str(n), 10.0 + n, 15.0, 40.0 + n / 2) for n in range(2, 5)]
    paid = levels(lives, 60.0)
    assert [level.executors for level in paid] == [1, 2, 3, 4, 3, 2, 1]
    assert [level.executors for level in rescaled(paid)] == [1, 4, 1]
    assert len(rescaled([Level(0.0, 1), Level(10.0, 2), Level(30.0, 3)])) == 3


def test_start_up_is_from_launch_to_registration_within_the_run() -> None:
    lives = [
        ExecutorLifetime("1", -9.0, -5.0, None),
        ExecutorLifetime("2", 5.0, 8.0, None),
        ExecutorLifetime("3", 9.0, None, None),
    ]
    assert startups_s([Observation(20.0, [], [], lives)]) == [3.0]


def test_the_job_on_paper_costs_what_live_batches_did() -> None:
    lives = [
        ExecutorLifetime("1", -9.0, -5.0, None),
        ExecutorLifetime("2", -9.0, -5.0, None),
        ExecutorLifetime("3", 30.0, 34.0, None),
    ]
    job = fitted_job([observed(PLAN.rates_rps(), lives)])
    assert job.fixed_s == pytest.approx(FIXED_S, abs=0.02)
    assert job.stages[0].core_s_per_record == pytest.approx(CORE_S, rel=0.02)
    assert job.startup.shortest_s == job.startup.longest_s == pytest.approx(4.0)
    assert job.join_s == pytest.approx(0.0, abs=0.2)


def test_a_live_run_is_forecast_from_those_of_the_others() -> None:
    """The runs follow the same arithmetic as the job, so that the forecast has to hit them."""
    others = [trial("spark", 1, executors=4), trial("hpa", 1, executors=2)]
    own = measured(trial("static", 1))
    guess = forecast(contestants(PLAN)["static"], others, executors=3, span_s=float(PLAN.load_s))
    assert guess.executor_s == pytest.approx(own.executor_s, rel=0.01)
    assert guess.p50_s == pytest.approx(own.p50_s, rel=0.1)
    assert guess.p95_s == pytest.approx(own.p95_s, rel=0.1)
    assert guess.rescales == 0.0


@pytest.mark.parametrize("name", ["spark", "hpa", "ds2", "penstock"])
def test_all_that_scale_grow_with_the_load_on_paper(name: str) -> None:
    others = [trial("static", 1)]
    guess = forecast(contestants(PLAN)[name], others, executors=1, span_s=float(PLAN.load_s))
    assert guess.executor_s > PLAN.load_s
    assert guess.rescales >= 1.0


def test_waiting_counts_as_cpu() -> None:
    executors = (ExecutorSample("1", 0.0, cpu_fraction=0.05, busy_fraction=0.9),)
    snapshot = Snapshot(600.0, Fleet(1, 1, 1), executors=executors)
    wish = WaitingIsWork(Hpa()).decide(snapshot, Knowledge())
    assert wish.target_executors == 2
    assert entry_of("hpa", PLAN).limits.max_executors == sizes.MAX_EXECUTORS


def test_dynamic_allocation_is_switched_on_with_sparks_own_waits() -> None:
    settings = find_contestant("spark", PLAN).settings
    assert settings["spark.dynamicAllocation.enabled"] == "true"
    assert settings["spark.dynamicAllocation.schedulerBacklogTimeout"] == "1s"
    assert settings["spark.dynamicAllocation.executorIdleTimeout"] == "60s"


def test_every_run_is_made_once_in_an_order_drawn_by_lot() -> None:
    names = list(contestants(PLAN))
    runs = contest.order(names, [1, 2, 3])
    assert sorted(runs) == sorted((name, number) for name in names for number in (1, 2, 3))
    assert runs == contest.order(names, [1, 2, 3])
    assert runs != contest.order(names, [1, 2, 3], seed=2)


def test_an_interrupted_contest_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    runs = contest.order(["static", "hpa"], [1, 2])
    made: list[tuple[str, int]] = []

    def play(name: str, number: int, plan: DemoPlan, place: Path) -> Trial:
        assert (plan, place) == (PLAN, path)
        if len(made) == 2 and (name, number) not in made:
            raise KeyboardInterrupt
        made.append((name, number))
        return trial(name, number)

    with pytest.raises(KeyboardInterrupt):
        list(contest.play_missing(path, PLAN, runs, lambda _: None, play))
    with path.open("ab") as file:
        file.write(b'{"contestant": "hp')  # the machine went down while this was written
    made_before = list(made)
    made.clear()

    def go_on(name: str, number: int, _plan: DemoPlan, _place: Path) -> Trial:
        made.append((name, number))
        return trial(name, number)

    with pytest.warns(UserWarning, match="torn"):
        list(contest.play_missing(path, PLAN, runs, lambda _: None, go_on))
    assert made_before + made == runs
    assert {(one.contestant, one.number) for one in contest.read_trials(path, PLAN)} == set(runs)


def test_a_run_that_fails_is_told_of_and_left_out(tmp_path: Path) -> None:
    path, said = tmp_path / "live.jsonl", list[str]()

    def play(name: str, number: int, _plan: DemoPlan, _place: Path) -> Trial:
        if name == "hpa":
            raise PenstockError("the run of hpa failed")
        return trial(name, number)

    runs = [("hpa", 1), ("static", 1)]
    finished = list(contest.play_missing(path, PLAN, runs, said.append, play))
    assert [one.contestant for one in finished] == ["static"]
    assert "the run of hpa failed" in said


def test_runs_of_another_load_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(msgspec.json.encode(trial("static", 1)) + b"\n")
    with pytest.raises(ConfigError, match="runs of another load"):
        contest.read_trials(path, DemoPlan(load_s=300))
    path.write_text("{}\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is not a live run"):
        contest.read_trials(path, PLAN)


def test_the_page_shows_means_forecasts_and_every_run() -> None:
    trials = [trial(name, number) for number in (1, 2) for name in ("static", "spark", "hpa")]
    text = results_live.page(trials)
    lines = text.splitlines()
    assert sum(line.startswith("| simulated |") for line in lines) == 3
    assert sum(line.startswith("| 2026-11-16") for line in lines) == 6
    assert "2 cores with 8 GiB of memory" in text
    live = next(line for line in lines if line.startswith("| **static**"))
    paper = lines[lines.index(live) + 1]
    # 3 executors for 110 s, and none of it by chance: the forecast is the same.
    assert live.split("|")[2].strip() == "330"
    assert paper.split("|")[2].strip() == "330"


def test_the_main_table_stands_at_the_end_of_the_page_with_all_results() -> None:
    trials = [trial(name, number) for number in (1, 2) for name in ("static", "spark")]
    ours = results_live.section(trials, "All was quiet.")
    first = results_live.with_section("# Results\n\nSimulated.\n", ours)
    assert first.startswith("# Results\n\nSimulated.\n\n## On real Spark\n\nRun from 2026-11-16")
    assert "All was quiet." in first
    assert results_live.with_section(first, ours) == first
    # Whoever writes the rest of that page finds where ours begins.
    assert ours.startswith(results.LIVE)


def test_the_page_tells_how_well_a_demo_predicts_its_second_half() -> None:
    kept = MemoryJournal()
    entry = read_policy_spec("penstock", {"max_executors": 12})
    simulate(Scenario("sine:period=45min", duration_s=5400.0), entry.policy, entry.limits, kept)
    lines = results_live.page([trial("static", 1)], kept.steps).splitlines()
    off = next(line for line in lines if line.startswith("| throughput |"))
    assert float(off.split("|")[2].strip(" %")) < 5.0
    assert off.split("|")[3].strip() == "5 %"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "hpaa"], "unknown contestant of a live comparison 'hpaa'"),
        (["--workload", "sine"], "--workload"),
        (["--seeds", "x"], "--seeds must be whole numbers"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compare-live", *arguments])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sparks_own_dynamic_allocation_is_measured_without_penstock(tmp_path: Path) -> None:
    short = DemoPlan(load_s=30)
    seen = contest.play_for_real("spark", 1, short, tmp_path / "live.jsonl").observation
    assert 30.0 <= seen.span_s <= 60.0
    # It asks for an executor per waiting task: before the load has begun it has more than one.
    assert seen.outcome().paid[0].executors > 1
    assert seen.arrived[-1][1] - seen.arrived[0][1] >= 0.9 * sum(short.rates_rps())
    assert sum(batch.records for batch in seen.batches) > 0
    assert not list(tmp_path.glob("live/*.jsonl"))  # nothing of Penstock's kept a journal
