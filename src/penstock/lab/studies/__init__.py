"""Published studies of scalers, run again: each module has ``study() -> StudyPlan``.

The table names the module and says in one line what the study did. A module is loaded when its
study is asked for.
"""

from importlib import import_module
from typing import Any

from penstock.core.errors import unknown
from penstock.lab.experiments import lab_module
from penstock.lab.studies.skeleton import Bench, StudyPlan
from penstock.lab.studies.study import Study

STUDIES: dict[str, str] = {
    "koper2022": "18 scaler settings on three Nexmark queries over Flink",
    "daedalus2024": "Daedalus, two HPAs and a fixed fleet on three Flink jobs",
    "borkowski2019": "two thresholds on raw, smoothed and Kalman-filtered cpu",
    "russo2021": "backlog, queueing theory and DS2 on a pipeline of images",
    "varga2021": "what state costs to save and to load, measured on real Spark",
}


def check_lab_extra() -> None:
    """Refuse before minutes of runs what needs a library that is not installed."""
    lab_module("scipy.stats", "reproduce")


def reproduce(name: str, bench: Bench | None = None) -> Study:
    """Run a study again: in processes of this machine, or as `bench` says."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    check_lab_extra()
    plan: StudyPlan[Any, Any] = import_module(f"penstock.lab.studies.{name}").study()
    return plan.reproduce(bench)
