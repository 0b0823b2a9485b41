"""One live run of one scaler, and what was seen of it.

A process of its own, so that no run is affected by what another left behind: it takes a
`TrialOrder` as JSON and writes its `Trial` as one line of JSON.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from penstock.core.clock import WallClock
from penstock.core.errors import PenstockError, unknown
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Snapshot
from penstock.core.protocols import Policy
from penstock.lab.experiments.score import score
from penstock.lab.live_comparison.observer import Observation, Observer, rescaled
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import PolicySpec
from penstock.simulation.engines.engine import Outcome
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.attached import attached_demo, elapsed
from penstock.testbed.demo.environment import DemoEnvironment, Say, demo_environment
from penstock.testbed.demo.plan import DemoPlan, with_scaled_time
from penstock.testbed.jars import BROKER
from penstock.testbed.java import find_java
from penstock.testbed.jobs.playback import Report

PEAK_FILL = 0.7  #: How much of a static fleet the peak of the load may fill.
LOOK_EVERY_S = 0.5
WARM_UP_S = 90.0  #: Executors that start at once on one machine take long to reach full speed.
GOAL = Goal(slo_s=sizes.SLO_S, warmup_s=0.0)


class LiveScaler(Struct, frozen=True):
    """What sizes the fleet: a policy of Penstock, Spark by its settings, or nothing."""

    name: str
    words: str
    policy: str | None = None
    executors: int = 1
    settings: dict[str, str] = {}


class TrialOrder(Struct, frozen=True):
    """Which run to make: the name of a scaler, a number, the load, and a place for its journal."""

    contestant: str
    number: int
    plan: DemoPlan
    journal: str


class Trial(Struct, frozen=True):
    """A finished run: one line of the file of finished runs."""

    contestant: str
    number: int
    began_at: str
    plan: DemoPlan
    machine: dict[str, str]
    observation: Observation
    sent: Report | None = None


class Figures(Struct, frozen=True):
    """A run in numbers. `failed_tasks` is ``None`` where nothing can fail."""

    executor_s: float
    p50_s: float
    p95_s: float
    late_fraction: float
    rescales: float
    moved_executors: float
    failed_tasks: float | None = None


def contestants(plan: DemoPlan) -> dict[str, LiveScaler]:
    """The five that are compared, by name.

    >>> five = contestants(DemoPlan("q11", 81))
    >>> list(five), five["static"].executors
    (['static', 'spark', 'hpa', 'ds2', 'penstock'], 3)
    """
    peak_load = plan.peak_rps * plan.pace_s
    peak_fleet = min(sizes.MAX_EXECUTORS, ceil(peak_load / PEAK_FILL))
    text = files("penstock.lab.live_comparison").joinpath("scalers.json").read_bytes()
    found = {}
    for one in msgspec.json.decode(text, type=list[LiveScaler]):
        found[one.name] = msgspec.structs.replace(
            one,
            words=one.words.format(executors=peak_fleet, filled=100 * peak_load / peak_fleet),
            executors=peak_fleet if one.name == "static" else one.executors,
            # The waits are Spark's own defaults, not those of the testbed, which keep its fleet.
            settings={k: v.format(most=sizes.MAX_EXECUTORS) for k, v in one.settings.items()},
        )
    return found


def find_contestant(name: str, plan: DemoPlan) -> LiveScaler:
    known = contestants(plan)
    if name not in known:
        raise unknown("contestant", name, known)
    return known[name]


@dataclass(frozen=True, slots=True)
class WaitingIsWork:
    """A policy that takes the time an executor is busy for its cpu.

    In a paced job records wait where they would compute, so cpu is no measure of load.
    """

    policy: Policy
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    @property
    def period_s(self) -> float:
        return self.policy.period_s

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        replace = msgspec.structs.replace
        busy = [replace(one, cpu_fraction=one.busy_fraction) for one in snapshot.executors]
        return self.policy.decide(replace(snapshot, executors=tuple(busy)), knowledge)


def entry_of(policy: str, plan: DemoPlan) -> PolicySpec:
    """A policy in the time of the plan, as it runs here, live and simulated."""
    entry = with_scaled_time(policy, plan)
    return PolicySpec(entry.label, WaitingIsWork(entry.policy), entry.limits)


def run_trial(order: TrialOrder, say: Say) -> Trial:
    """Run the load to its end, and return what was seen."""
    with _on(order, say) as environment, closing(Observer(environment)) as observer:
        began_at = datetime.fromtimestamp(WallClock().now(), UTC).strftime("%Y-%m-%d %H:%M")
        for _ in WallClock().ticks(LOOK_EVERY_S):
            if environment.is_over():
                break
        seen, sent = observer.observation(), environment.producer.report()
    return Trial(order.contestant, order.number, began_at, order.plan, machine(), seen, sent)


@contextmanager
def _on(order: TrialOrder, say: Say) -> Iterator[DemoEnvironment]:
    """The demo with or without Penstock. Batches are not capped, so that all are alike."""
    plan, journal = order.plan, Path(order.journal)
    one = find_contestant(order.contestant, plan)
    if one.policy is None:
        with demo_environment(
            plan, say, executors=one.executors, settings=one.settings, warmup_s=WARM_UP_S
        ) as environment:
            yield environment
    else:
        journal.unlink(missing_ok=True)  # of a run that was interrupted
        entry = entry_of(one.policy, plan)
        with attached_demo(plan, entry, journal, say, admission=False, warmup_s=WARM_UP_S) as live:
            yield live.environment


def figures(outcome: Outcome, failed_tasks: int | None = None) -> Figures:
    """A run in numbers, the same way whether it was live or simulated."""
    alike = msgspec.structs.replace(outcome, targets=rescaled(outcome.paid))
    found = score(alike, GOAL, sizes.MAX_EXECUTORS)
    same = {name: getattr(found, name) for name in Figures.__struct_fields__[1:-1]}
    return Figures(3600.0 * found.executor_hours, **same, failed_tasks=failed_tasks)


def measured(trial: Trial) -> Figures:
    """A live run in numbers."""
    return figures(trial.observation.outcome(), trial.observation.failed_tasks)


def machine() -> dict[str, str]:
    """The machine and the versions, as far as they influence the figures."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "java": str(find_java().version),
        "kafka": BROKER.name.rpartition(" ")[2],
        "penstock": version("penstock"),
    }


def main(order_json: str) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    since_s = elapsed()

    def say(line: str) -> None:
        sys.stderr.write(f"{since_s():7.1f} s  {line}\n")

    try:
        trial = run_trial(msgspec.json.decode(order_json, type=TrialOrder), say)
    except (PenstockError, msgspec.MsgspecError) as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(msgspec.json.encode(trial).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
