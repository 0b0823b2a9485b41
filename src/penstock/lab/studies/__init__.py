"""Published studies of scalers, run again: each module has ``reproduce(processes, say) -> Study``.

The table names the module and says in one line what the study did. A module is loaded when its
study is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from penstock.core.errors import unknown
from penstock.lab.experiments.extra import lab_module
from penstock.lab.studies.study import Study

#: Told now and then, in a few words, how far a reproduction has come.
Say = Callable[[str], None]

STUDIES: dict[str, str] = {
    "koper2022": "18 scaler settings on three Nexmark queries over Flink",
    "daedalus2024": "Daedalus, two HPAs and a fixed fleet on three Flink jobs",
    "borkowski2019": "two thresholds on raw, smoothed and Kalman-filtered cpu",
    "russo2021": "backlog, queueing theory and DS2 on a pipeline of images",
    "varga2021": "what state costs to save and to load, measured on real Spark",
}


class StudyModule(Protocol):
    """What a module of this package offers."""

    def reproduce(self, processes: int | None, say: Say) -> Study: ...


def reproduce(name: str, processes: int | None = None, say: Say = lambda _: None) -> Study:
    """Run the study of that name again."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    lab_module("scipy.stats", "reproduce")
    module = cast("StudyModule", import_module(f"penstock.lab.studies.{name}"))
    return module.reproduce(processes, say)
