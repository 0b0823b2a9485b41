"""The live comparison: how a run is measured, forecast, kept and taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import msgspec
import pytest
from docs import results, results_live

from penstock.cli.app import main
from penstock.cli.views.live_page import live_page
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.journal import read_steps
from penstock.core.knowledge import Knowledge
from penstock.core.model import ExecutorSample, Fleet, Snapshot
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
from penstock.lab.live_comparison.plan import LivePlan
from penstock.lab.live_comparison.scalers import DEFAULT_SCALERS, WaitingIsWork, entry_of, scaler_of
from penstock.lab.live_comparison.trial import Trial, TrialOrder, measured
from penstock.observe.report.series import Telemetry
from penstock.policies.kubernetes.hpa import Hpa
from penstock.simulation.engines.engine import Level
from penstock.testbed.demo import plan as sizes

PLAN = LivePlan(load_s=110, full_peak_rps=2600.0)
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
    signals = [[1.0, None]] * 9
    return Trial(
        name, number, f"2026-11-16 0{number}:00", PLAN, facts, seen, Telemetry([0.0, 4.0], *signals)
    )


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
    assert found.mean_executors == pytest.approx(1.5)
    # 2 s for nine tenths of the records, 1 s for the last ones.
    assert found.mean_delay_s == pytest.approx(1.9)
    assert found.delay_and_executors == pytest.approx(3.4)
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
    seen = observed(PLAN.rates_rps(), lives)
    job = fitted_job([msgspec.structs.replace(trial("ds2", 1), observation=seen)])
    assert job.fixed_s == pytest.approx(FIXED_S, abs=0.02)
    assert job.stages[0].core_s_per_record == pytest.approx(CORE_S, rel=0.02)
    assert job.startup.shortest_s == job.startup.longest_s == pytest.approx(4.0)
    assert job.join_s == pytest.approx(0.0, abs=0.2)


def test_a_live_run_is_forecast_from_those_of_the_others() -> None:
    """The runs follow the same arithmetic as the job, so that the forecast has to hit them."""
    others = [trial("spark", 1, executors=4), trial("hpa", 1, executors=2)]
    own = measured(trial("static:3", 1))
    guess = forecast(scaler_of("static:3", PLAN), others, executors=3, span_s=float(PLAN.load_s))
    assert guess.executor_s == pytest.approx(own.executor_s, rel=0.01)
    assert guess.mean_delay_s == pytest.approx(own.mean_delay_s, rel=0.1)
    assert guess.p95_s == pytest.approx(own.p95_s, rel=0.1)
    assert guess.rescales == 0.0


@pytest.mark.parametrize("name", ["spark", "hpa", "ds2", "penstock"])
def test_all_that_scale_grow_with_the_load_on_paper(name: str) -> None:
    others = [trial("static:3", 1)]
    guess = forecast(scaler_of(name, PLAN), others, executors=1, span_s=float(PLAN.load_s))
    assert guess.executor_s > PLAN.load_s
    assert guess.rescales >= 1.0


def test_waiting_counts_as_cpu_now_and_when_a_policy_looks_back() -> None:
    executors = (ExecutorSample("1", 0.0, cpu_fraction=0.05, busy_fraction=0.9),)
    snapshot = Snapshot(600.0, Fleet(1, 1, 1), executors=executors)
    knowledge = Knowledge()
    knowledge.learn(snapshot, 600.0)
    wish = WaitingIsWork(Hpa()).decide(snapshot, knowledge)
    assert wish.target_executors == 2
    assert [one.cpu_fraction for one in knowledge.history[-1].executors] == [0.9]
    assert entry_of("hpa", PLAN).limits.max_executors == sizes.MAX_EXECUTORS


def test_a_policy_that_is_woken_by_surges_is_woken_here_too() -> None:
    assert entry_of("penstock", PLAN).policy.wakes_on_surge
    assert not entry_of("hpa", PLAN).policy.wakes_on_surge


def test_executors_that_compute_show_their_real_cpu() -> None:
    computing = LivePlan("images-recognise", load_s=110, cpu_share=0.2)
    assert isinstance(entry_of("hpa", PLAN).policy, WaitingIsWork)
    assert isinstance(entry_of("hpa", computing).policy, Hpa)


def test_dynamic_allocation_is_switched_on_with_sparks_own_waits() -> None:
    settings = scaler_of("spark", PLAN).settings
    assert settings["spark.dynamicAllocation.enabled"] == "true"
    assert settings["spark.dynamicAllocation.schedulerBacklogTimeout"] == "1s"
    assert settings["spark.dynamicAllocation.executorIdleTimeout"] == "60s"


def test_a_load_of_an_hour_is_compressed_and_keeps_its_shape() -> None:
    """Low for half an hour, then four times as high: two minutes of each in a run of four."""
    load = "constant:rate=10 for 30min then constant:rate=40 for 30min"
    plan = LivePlan("q1", load_s=240, workload=load)
    rates = plan.rates_rps()
    assert rates == [850.0] * 120 + [3400.0] * 120  # the demo of q1 has its peak at 3,400
    assert (plan.low_rps, plan.peak_rps, plan.speed) == (850.0, 3400.0, 10.0)
    assert scaler_of("ds2", plan).executors == 2  # 0.85 executors of work at 70 %
    assert scaler_of("static", plan).name == "static:5"
    # A load shorter than the run is stretched.
    slow = LivePlan(
        "q1", load_s=120, workload="constant:rate=1 for 30s then constant:rate=2 for 30s"
    )
    assert slow.rates_rps() == [1700.0] * 60 + [3400.0] * 60
    assert slow.speed == 1.0


def test_every_run_is_made_once_in_a_shuffled_order() -> None:
    runs = contest.order(DEFAULT_SCALERS, 3, PLAN)
    assert sorted(runs) == sorted((name, n) for name in DEFAULT_SCALERS for n in (1, 2, 3))
    assert runs == contest.order(DEFAULT_SCALERS, 3, PLAN)
    assert runs != contest.order(DEFAULT_SCALERS, 3, LivePlan("q1"))


def silent(_: str) -> None:
    pass


def test_an_interrupted_comparison_continues_with_what_is_missing(tmp_path: Path) -> None:
    runs = contest.order(["static:3", "hpa"], 2, PLAN)
    made: list[tuple[str, int]] = []

    def play(order: TrialOrder) -> Trial:
        assert order.plan == PLAN
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append((order.scaler, order.number))
        return trial(order.scaler, order.number)

    with pytest.raises(KeyboardInterrupt):
        list(contest.play_missing(tmp_path, PLAN, runs, silent, play=play))
    made_before = list(made)
    made.clear()
    list(contest.play_missing(tmp_path, PLAN, runs[:3], silent, play=play))
    assert made_before + made == runs[:3]
    assert {(one.scaler, one.number) for one in contest.read_trials(tmp_path)} == set(runs[:3])


def test_no_run_begins_that_would_end_after_the_time_given(tmp_path: Path) -> None:
    """Each takes 110 s of load and 45 s around it: two of four fit into 320 s."""
    said: list[str] = []
    runs = contest.order(["static:3", "hpa"], 2, PLAN)
    made = contest.play_missing(
        tmp_path, PLAN, runs, said.append, at_most_s=320.0,
        play=lambda order: trial(order.scaler, order.number),
    )  # fmt: skip
    assert [(one.scaler, one.number) for one in made] == runs[:2]
    assert said[-1] == "2 runs are left for another time"


def test_a_run_that_fails_is_reported_and_left_out(tmp_path: Path) -> None:
    said = list[str]()

    def play(order: TrialOrder) -> Trial:
        if order.scaler == "hpa":
            raise PenstockError("the run of hpa failed")
        return trial(order.scaler, order.number)

    runs = [("hpa", 1), ("static:3", 1)]
    finished = list(contest.play_missing(tmp_path, PLAN, runs, said.append, play=play))
    assert [one.scaler for one in finished] == ["static:3"]
    assert "the run of hpa failed" in said


def test_runs_of_another_plan_are_not_mixed_in(tmp_path: Path) -> None:
    list(contest.play_missing(tmp_path, PLAN, [("hpa", 1)], silent, play=lambda _: trial("hpa", 1)))
    higher = msgspec.structs.replace(PLAN, full_peak_rps=3000.0)
    with pytest.raises(ConfigError, match="is a run of another plan: name another directory"):
        list(contest.play_missing(tmp_path, higher, [("hpa", 1)], silent))
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"x\.json is not a live run"):
        contest.read_trials(tmp_path)


def test_the_documents_show_means_forecasts_and_every_run() -> None:
    trials = [trial(name, number) for number in (1, 2) for name in ("static:3", "spark", "hpa")]
    text = results_live.page(trials, "What we make of it.")
    lines = text.splitlines()
    assert sum(line.startswith("| simulated |") for line in lines) == 3
    assert sum(line.startswith("| 2026-11-16") for line in lines) == 6
    assert "2 cores with 8 GiB of memory" in text
    assert "What we make of it." in lines
    live = next(line for line in lines if line.startswith("| **static:3**"))
    paper = lines[lines.index(live) + 1]
    # 3 executors for 110 s, and none of it by chance: the forecast is the same.
    assert live.split("|")[8].strip() == "330"
    assert paper.split("|")[8].strip() == "330"


def test_the_ranking_of_the_thesis_stands_beside_ours() -> None:
    plan = LivePlan("q1", load_s=110, workload="koper-q1 for 1h")
    runs = [
        msgspec.structs.replace(trial(name, 1, executors), plan=plan)
        for name, executors in (("hpa:cpu_target=0.5", 4), ("ds2:overprovisioning=0.33", 3))
    ]
    text = results_live.page(runs)
    assert "## q1: the ranking of the thesis and ours" in text
    assert "| hpa:cpu_target=0.5 | 0.8 | 8.25 | 9.04 | 40 |" in text
    assert "Rank correlation of 2 rows: latency 1.00, workers 1.00" in text


def test_the_page_has_the_telemetry_of_every_run() -> None:
    page = live_page([trial(name, number) for number in (1, 2) for name in ("static:3", "ds2")])
    assert page.count("<details>") == 4
    # A scatter, the delays, and eight signals of each run.
    assert page.count("<figure data-figure=") == 2 + 4 * 8


def test_the_comparison_that_is_kept_is_one_that_can_be_run() -> None:
    plans = results_live.planned()
    assert [plan.job for plan, _ in plans][:3] == ["q1", "q3-thesis", "q11"]
    for plan, scalers in plans:
        assert plan.load_s >= 240
        assert len({scaler_of(text, plan).name for text in scalers}) == len(scalers)
        assert not plan.workload.startswith("koper-") or len(scalers) >= 12
    assert results_live.THESIS.keys() <= set(plans[0][1])


def test_the_main_table_stands_at_the_end_of_the_page_with_all_results() -> None:
    trials = [trial(name, number) for number in (1, 2) for name in ("static:3", "spark")]
    ours = results_live.section(trials)
    first = results_live.with_section("# Results\n\nSimulated.\n", ours)
    assert first.startswith("# Results\n\nSimulated.\n\n## On real Spark\n\n4 runs from 2026-11-16")
    assert results_live.with_section(first, ours) == first
    # Whoever writes the rest of that page finds where ours begins.
    assert ours.startswith(results.LIVE)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "hpaa"], "unknown policy 'hpaa': did you mean 'hpa'?"),
        (["--policy", "static:99"], "static:99: a live fleet has 1 to 8 executors, not 99"),
        (["--job", "q111"], "unknown job 'q111': did you mean 'q11'?"),
        (["--workload", "sine"], "workload 'sine' has no end"),
        (["--workload", "koper-q12"], "unknown workload 'koper-q12': did you mean"),
        (["--workload", "constant:rate=0 for 1h"], "has no records"),
        (["--repeats", "0"], "--repeats must be a whole number from 1 to 1000, not '0'"),
        (["--minutes", "0.1"], "--minutes must be between 0.5 and 1440, not 0.1"),
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
@pytest.mark.long
@pytest.mark.timeout(600)
def test_sparks_own_dynamic_allocation_is_measured_without_penstock(tmp_path: Path) -> None:
    short = LivePlan(load_s=30)
    journal = tmp_path / "spark.jsonl"
    made = contest.play_for_real(TrialOrder("spark", 1, short, str(journal)))
    seen = made.observation
    assert 30.0 <= seen.span_s <= 60.0
    # It asks for an executor per waiting task: before the load has begun it has more than one.
    assert seen.outcome().paid[0].executors > 1
    assert seen.arrived[-1][1] - seen.arrived[0][1] >= 0.9 * sum(short.rates_rps())
    assert sum(batch.records for batch in seen.batches) > 0
    # Penstock watches, and moves nothing.
    steps = list(read_steps(journal))
    assert len(made.telemetry.workers) >= len(steps) - 1 > 3
    assert not any(step.receipt and step.receipt.accepted for step in steps)
