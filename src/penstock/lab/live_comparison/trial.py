"""One live run of one scaler, and what was seen of it.

A process of its own, so that no run is affected by what another left behind: it takes a
`TrialOrder` as JSON and writes its `Trial` as one line of JSON.
"""

import os
import platform
import signal
import sys
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.core.clock import WallClock
from penstock.core.errors import PenstockError
from penstock.lab.experiments.score import Delays, score
from penstock.lab.live_comparison.observer import Observation, Observer, rescaled
from penstock.lab.live_comparison.plan import LivePlan
from penstock.lab.live_comparison.scalers import scaler_of, simulated_spec
from penstock.observe.report.series import Telemetry, telemetry
from penstock.settings.goal import Goal
from penstock.simulation.engines.engine import Outcome
from penstock.testbed.demo import plan as sizes
from penstock.testbed.demo.attached import attached_demo, elapsed
from penstock.testbed.demo.environment import Say
from penstock.testbed.jars import BROKER
from penstock.testbed.java import find_java
from penstock.testbed.jobs.playback import Report

LOOK_EVERY_S = 0.5
WARM_UP_S = 60.0  #: Executors that start at once on one machine take long to reach full speed.


class TrialOrder(Struct, frozen=True):
    """Which run to make: the text of a scaler, a number, the load, and a place for its journal."""

    scaler: str
    number: int
    plan: LivePlan
    journal: str


class Trial(Struct, frozen=True):
    """A finished run, a file of its own. `telemetry` is what Penstock's sensor saw of it."""

    scaler: str
    number: int
    began_at: str
    plan: LivePlan
    machine: dict[str, str]
    observation: Observation
    telemetry: Telemetry
    sent: Report | None = None


class Figures(Struct, frozen=True):
    """A run in numbers. `failed_tasks` is ``None`` where nothing can fail."""

    mean_delay_s: float
    mean_executors: float
    rescales: float
    executor_s: float
    p95_s: float
    late_fraction: float
    moved_executors: float
    cost: float
    failed_tasks: float | None = None

    @property
    def delay_and_executors(self) -> float:
        """The sum by which Koper (2022) ranks: seconds of mean delay and mean executors."""
        return self.mean_delay_s + self.mean_executors


def run_trial(order: TrialOrder, say: Say) -> Trial:
    """Run the load to its end, and return what was seen."""
    plan, journal = order.plan, Path(order.journal)
    journal.unlink(missing_ok=True)  # of a run that was interrupted
    one = scaler_of(order.scaler, plan)
    # Without a policy of its own, Penstock watches and moves nothing.
    with (
        attached_demo(
            plan,
            simulated_spec(one, plan),
            journal,
            say,
            mode="recommend" if one.policy is None else "act",
            executors=one.executors,
            settings=one.settings,
            admission=False,  # batches are not capped, so that all are alike
            warmup_s=WARM_UP_S,
        ) as live,
        closing(Observer(live.environment)) as observer,
    ):
        began_at = datetime.fromtimestamp(WallClock().now(), UTC).strftime("%Y-%m-%d %H:%M")
        for _ in WallClock().ticks(LOOK_EVERY_S):
            if live.environment.is_over():
                break
        seen, sent = observer.observation(), live.environment.producer.report()
        shown = rounded(telemetry(live.steps))
    return Trial(one.name, order.number, began_at, plan, machine(), seen, shown, sent)


def rounded(seen: Telemetry) -> Telemetry:
    """The same to four decimals: a run is a small file."""
    columns = {
        name: [None if each is None else round(each, 4) for each in values]
        for name, values in msgspec.structs.asdict(seen).items()
    }
    return msgspec.convert(columns, Telemetry)


def figures(outcome: Outcome, plan: LivePlan, failed_tasks: int | None = None) -> Figures:
    """A run, live or simulated, in numbers; the price of a move is a span, scaled as all spans."""
    goal = Goal(slo_s=sizes.SLO_S, warmup_s=0.0)
    goal = msgspec.structs.replace(goal, move_price=goal.move_price / plan.speed)
    alike = msgspec.structs.replace(outcome, targets=rescaled(outcome.paid))
    found = score(alike, goal, sizes.MAX_EXECUTORS)
    same = ("mean_executors", "rescales", "p95_s", "late_fraction")
    return Figures(
        mean_delay_s=Delays.of(outcome).mean(),
        executor_s=3600.0 * found.executor_hours,
        moved_executors=found.moved_executors,
        cost=60.0 * found.cost,
        failed_tasks=failed_tasks,
        **{name: getattr(found, name) for name in same},
    )


def measured(trial: Trial) -> Figures:
    seen = trial.observation
    return figures(seen.outcome(), trial.plan, seen.failed_tasks)


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
