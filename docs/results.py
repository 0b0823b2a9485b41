"""Writes docs/results.md: every policy of the table on all loads, on both engines.

    python -m docs.results [TRACE.csv ...] [--seeds 1..5] [--hours 3] [--processes 2]

Recorded loads are given as files (five-minute values will do) and are called by the names of these;
without any, the loads are those of the studies and the shapes of the lab alone. Some policies on
some loads: `--policy hpa ds2 --columns bursts "3 executors lost at once" --page part.md`.
docs/rivals.py says which settings run.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import ClassVar, NamedTuple

from docs.results_tables import Column, columns, head, summary, written
from docs.rivals import BOUNDS, ENGINES, HARD, SMOOTH, Entry, entries, read_tuned
from msgspec.structs import replace

from penstock.cli.options import seed_numbers
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, Step
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import Scenario, run
from penstock.lab.experiments.tournament import ORACLE, Row, cells, judged_by_oracle
from penstock.lab.experiments.tournament import play as play_cell
from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.policies.penstock.forecasters import Forecast, load_ahead
from penstock.policies.penstock.penstock import Penstock, PenstockMemory
from penstock.policies.penstock.planning import BINS
from penstock.policies.penstock.surges import Surges
from penstock.settings.goal import Goal
from penstock.settings.notation import parse
from penstock.simulation.faults import (
    CapacityDrop,
    ExecutorLost,
    FailedStart,
    Fault,
    SensorLate,
    SkewSetsIn,
    SlowStart,
    SourceSilence,
)

PAGE = Path(__file__).parent / "results.md"
#: From here on the page is that of docs/results_live.py.
LIVE = "## On real Spark"
HOUR_S = 3600.0
STEADY = "sine:period=3h"
#: An executor is lost as often as this where the tables say so.
LOSS_EVERY_S = 1200.0
#: What goes wrong in the third table, on a steady load, halfway through three hours.
FAULTS: dict[str, tuple[Fault, ...]] = {
    "sensor 30 s late": (SensorLate(),),
    "capacity falls by 30 % halfway": (CapacityDrop(at_s=1.5 * HOUR_S),),
    "skew sets in halfway": (SkewSetsIn(at_s=1.5 * HOUR_S),),
    "a third of the starts fails": (FailedStart(at_s=0.0, probability=0.33),),
    "executors start 4 times slower": (SlowStart(at_s=0.0, factor=4.0),),
    "source silent for 10 min": (SourceSilence(at_s=1.5 * HOUR_S),),
    "3 executors lost at once": (ExecutorLost(at_s=1.5 * HOUR_S, count=3),),
}
STATES = ("1G", "4G", "16G")
RECOVERY_TARGETS = ("1min", "3min", "10min", "30min")

SECOND_DAY = "penstock, second day"
FORESIGHT = "penstock, if it saw the next minute"
#: The next minute, in bins of half a minute.
SEEN_BINS = 2
WRONG_PRIORS = {"penstock, half the capacity believed": 2.0, "penstock, twice": 0.5}
#: A day is long, and a wrong prior is soon corrected: two seeds are enough for these.
DAY_SEEDS = BELIEF_SEEDS = 2


class Trial(NamedTuple):
    """One column: the load, what goes wrong, for how long (``None``: as long as the load), and
    options of the engine."""

    load: str
    faults: tuple[Fault, ...] = ()
    duration_s: float | None = None
    job: str = ""

    def on(self, engine: str) -> str:
        return f"{engine}:{self.job}" if self.job else engine


@dataclass(frozen=True, slots=True)
class Part:
    """One table: a load or a fault in each column, run with the first `seeds` seeds.

    `family` says for which loads the rivals were tuned; `settings` are the rows where not all
    policies take part.
    """

    title: str
    trials: dict[str, Trial]
    family: str = "smooth"
    seeds: int | None = None
    settings: tuple[str, ...] = ()

    def entries(self, engine: str, policies: Sequence[str]) -> list[Entry]:
        if self.settings:
            own = [one for one in self.settings if parse(one).name in policies]
            return [Entry(setting, f"`{setting}`") for setting in own]
        return entries(self.family, engine, read_tuned(), policies)


def parts(traces: Sequence[Path], hours: float) -> Iterator[Part]:
    length_s = HOUR_S * hours
    yield Part(
        "Smooth loads", {load: Trial(load, (), _length_s(load, length_s)) for load in SMOOTH}
    )
    yield Part("Hard loads", {load: Trial(load, (), length_s) for load in HARD}, "hard")
    wrong = {name: Trial(STEADY, faults, length_s) for name, faults in FAULTS.items()}
    wrong["an executor lost every 20 min"] = Trial(STEADY, losses(length_s), length_s)
    wrong["bursts from halfway on"] = Trial(
        f"{STEADY} for {hours / 2:g}h then bursts", (), length_s
    )
    for trace in traces[:1]:
        wrong["20 % noise"] = Trial(f"trace:{trace},hours={hours:g},noise=0.2")
    yield Part("When things go wrong", wrong)
    states = {
        f"{state}B of state": Trial(STEADY, losses(length_s), length_s, f"state={state}")
        for state in STATES
    }
    yield Part("State size, an executor lost every 20 min", states)
    targets = product(("daedalus", "phoebe"), RECOVERY_TARGETS)
    yield Part(
        "Recovery target, an executor lost every 20 min",
        {load: Trial(load, losses(length_s), length_s) for load in (STEADY, "bursts")},
        settings=("penstock", *(f"{name}:recovery_target={target}" for name, target in targets)),
    )
    if traces:
        days = {trace.stem: Trial(f"trace:{trace},hours=24") for trace in traces}
        yield Part("Recorded days", days, "recorded", seeds=DAY_SEEDS)


def losses(length_s: float) -> tuple[Fault, ...]:
    """An executor is lost again and again."""
    count = int((length_s - 1.0) / LOSS_EVERY_S)
    return tuple(ExecutorLost(at_s=LOSS_EVERY_S * (turn + 1)) for turn in range(count))


def _length_s(load: str, length_s: float) -> float | None:
    return None if load.startswith("koper") else length_s


def play(
    part: Part,
    engine: str,
    seeds: Sequence[int],
    settings: Sequence[str],
    processes: int | None = None,
) -> dict[str, list[Row]]:
    """The rows of each load or fault."""
    table = {}
    for name, trial in part.trials.items():
        grid = cells(
            [*settings, ORACLE], [trial.load], [trial.on(engine)], seeds, goal=Goal(),
            bounds=BOUNDS, duration_s=trial.duration_s, faults=trial.faults,
        )  # fmt: skip
        table[name] = judged_by_oracle(
            grid, lambda some: run_in_processes(play_cell, some, processes)
        )
        sys.stderr.write(f"{engine}: {name}\n")
    return table


@dataclass(frozen=True, slots=True)
class Experienced:
    """The default policy, which begins with what was learned, or believed, before."""

    memory: PenstockMemory
    policy: Penstock = field(default_factory=Penstock)
    period_s: float = 10.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = True

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        if knowledge.last_step is None:
            known = Decision.of(0, Reason("known", "from an earlier run"), memory=self.memory)
            knowledge.last_step = Step(0.0, None, known)
        return self.policy.decide(snapshot, knowledge)


@dataclass(frozen=True, slots=True)
class Foreseeing(Penstock):
    """The default policy, if it saw the load of the next minute; after that it forecasts as ever.

    `rates_rps` is the load of each second of the run.
    """

    rates_rps: tuple[float, ...] = ()

    def ahead(self, seen: Sequence[Snapshot], surges: Surges) -> Forecast:
        now = seen[-1]
        coming, to_come = [], []
        for piece in range(SEEN_BINS):
            begin = int(now.at_s + piece * self.bin_s)
            rates = self.rates_rps[begin : int(begin + self.bin_s)] or self.rates_rps[-1:]
            coming.append(sum(rates) / len(rates))
            to_come.append(replace(now, at_s=begin + self.bin_s, arrival_rps=coming[-1]))
        later = load_ahead([*seen, *to_come], surges, BINS - SEEN_BINS, self.bin_s)
        return Forecast([*coming, *later.mean], [0.0] * SEEN_BINS + later.deviation, "seen")


def foreseeing(scenario: Scenario) -> float:
    """The cost of a policy that sees the next minute."""
    policy = Foreseeing(rates_rps=tuple(map(float, scenario.rates())))
    return run(scenario, policy, policy.default_limits, Goal()).score.cost


def prepared(row: str, scenario: Scenario) -> float:
    """The cost of a policy that knows more, or something wrong; `row` says what.

    The job has run before, with another seed, and keeps some of what it has learned.
    """
    if row == FORESIGHT:
        return foreseeing(scenario)
    first = Scenario(scenario.workload, scenario.engine, scenario.seed + 100, scenario.duration_s)
    goal, limits = Goal(), Penstock.default_limits
    learned = run(first, Penstock(), limits, goal).steps[-1].decision.memory
    if row == SECOND_DAY:
        surges, length_s = learned.surges, float(len(first.rates()))
        past = tuple(replace(one, began_s=one.began_s - length_s) for one in surges.past)
        known = PenstockMemory(surges=replace(surges, past=past, last_s=None, began_s=None))
    else:
        work_s = WRONG_PRIORS[row] * learned.track.work_s
        known = PenstockMemory(track=replace(learned.track, work_s=work_s, at_s=0.0))
    return run(scenario, Experienced(known), limits, goal).score.cost


def more_rows(
    part: Part,
    engine: str,
    table: dict[str, list[Row]],
    seeds: Sequence[int],
    processes: int | None,
) -> dict[str, dict[str, float]]:
    """Mean regrets of policies with some knowledge, right or wrong, for each load."""
    rows = {
        "Smooth loads": (FORESIGHT, *WRONG_PRIORS),
        "Hard loads": (FORESIGHT, SECOND_DAY),
    }.get(part.title, ())
    found: dict[str, dict[str, float]] = {row: {} for row in rows}
    for row, (name, trial) in product(rows, part.trials.items()):
        used = seeds[:BELIEF_SEEDS] if row in WRONG_PRIORS else seeds
        days = [Scenario(trial.load, engine, seed, trial.duration_s) for seed in used]
        least = {one.seed: one.cost for one in table[name] if one.policy == ORACLE}
        costs = run_in_processes(partial(prepared, row), days, processes)
        regrets = [cost / least[day.seed] - 1.0 for cost, day in zip(costs, days, strict=True)]
        found[row][name] = sum(regrets) / len(regrets)
    return found


def chosen(part: Part, names: Sequence[str]) -> Part:
    """The part with these columns only, or all of it without names."""
    kept = {name: trial for name, trial in part.trials.items() if not names or name in names}
    return dataclasses.replace(part, trials=kept)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description="Write docs/results.md.")
    options.add_argument("traces", nargs="*", type=Path)
    options.add_argument("--seeds", default="1..5")
    options.add_argument("--hours", type=float, default=3.0)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--policy", nargs="+", default=tuple(POLICIES), choices=POLICIES)
    options.add_argument("--engine", nargs="+", default=ENGINES, choices=ENGINES)
    options.add_argument("--columns", nargs="+", default=(), help="loads or faults, not all")
    options.add_argument("--page", type=Path, default=PAGE)
    given = options.parse_args(arguments)
    seeds = seed_numbers([given.seeds])
    policies = tuple(dict.fromkeys([DEFAULT_POLICY, *given.policy]))
    before = given.page.read_text(encoding="utf-8") if given.page.exists() else ""
    live = "".join(before.partition(LIVE)[1:])
    every = list(parts(given.traces, given.hours))
    for name in given.columns:
        if not any(name in part.trials for part in every):
            options.error(f"no table has a column '{name}'")
    pages: list[str] = []
    ours: list[Column] = []
    settings: set[str] = set()
    for part in (chosen(part, given.columns) for part in every):
        for engine in given.engine if part.trials else ():
            used, rows = seeds[: part.seeds], part.entries(engine, policies)
            settings.update(row.setting for row in rows)
            table = play(part, engine, used, [row.setting for row in rows], given.processes)
            more = more_rows(part, engine, table, used, given.processes)
            title, whole_days = f"{part.title}, {engine}", part.family == "recorded"
            pages.append(written(title, table, rows, more, whole_days=whole_days))
            ours += columns(part.title, engine, table)
            # Written after each part, so that an interrupted run keeps what it has.
            top = head(len(settings), given.seeds, given.hours, DAY_SEEDS)
            given.page.write_text("\n".join([top, summary(ours), *pages, live]), encoding="utf-8")


if __name__ == "__main__":
    main()
