"""How long studies, a compared day and a page take: ``python -m benchmarks.run --studies``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from penstock.core.model import Limits, Step
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.scenario import Scenario, simulate
from penstock.lab.experiments.tournament import cells, judged_by_oracle, play
from penstock.lab.studies import reproduce
from penstock.lab.studies.skeleton import Bench
from penstock.observe.report.page import page
from penstock.policies import POLICIES
from penstock.policies.kubernetes.hpa import Hpa
from penstock.settings import goal as score_goal

#: (name, value, goal): no value may pass its goal.
Goal = tuple[str, float, float]

REPORT_S = 6 * 3600


def goals() -> list[Goal]:
    """The whole study on two processes, calibration included, and the page of a journal."""
    studies = [
        (
            f"s for reproduce {name} on two processes",
            _took_s(partial(reproduce, name, Bench(2))),
            120.0,
        )
        for name in ("koper2022", "borkowski2019")
    ]
    return [*studies, ("s to compare all policies on a day, two processes", day_s(), 60.0),
            *report_page()]  # fmt: skip


def day_s() -> float:
    """As long as a recorded day takes: all policies, and the oracle that judges them."""
    grid = cells(list(POLICIES), ["diurnal"], ["micro-batch"], [1], goal=score_goal.Goal(),
                 bounds={}, duration_s=86_400.0)  # fmt: skip
    play_cells = partial(run_in_processes, play, processes=2)
    return _took_s(lambda: judged_by_oracle(grid, play_cells))


def report_page() -> list[Goal]:
    """The page of six hours with a turn every 15 s."""
    scenario = Scenario("sine", "micro-batch", seed=1, duration_s=REPORT_S)
    steps: list[Step] = []
    simulate(scenario, Hpa(), Limits(), watch=steps.append)
    pages: list[str] = []
    took_s = _took_s(lambda: pages.append(page([("hpa", steps)], title="6 h", slo_s=10.0)))
    return [
        ("s for the report page of a 6-hour journal", took_s, 2.0),
        ("MB of that page", len(pages[0].encode()) / 1e6, 2.0),
    ]


def _took_s(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
