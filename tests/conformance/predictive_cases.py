"""How the numeric cases of Daedalus and Phoebe are put to our code.

Two cases name a recording instead of giving numbers; these lie beside the cases, under the name
that the case has for them: 12 saturated workers, and workload and throughput around rescales.
Both are measurements published with Daedalus (dos-group/daedalus, commit 6a55dcb).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.policies.algorithms.arima import Series, wape
from penstock.policies.algorithms.recovery import Normal, predicted_recovery_s
from penstock.policies.daedalus.daedalus import CapacityOutlook, Daedalus
from penstock.policies.daedalus.regression import RunningRegression, ScaleOuts, full_cpu_fractions
from tests.conformance.reference.daedalus import episodes, mean_length_s
from tests.conformance.reference.studies import catch_up_whole_s, executor_capacities_rps

Example = Mapping[str, Any]

RECORDINGS = Path(__file__).parent.parent / "cases"

#: Where we have no such answer on purpose: pattern of ``id/key`` and why.
DIFFERS: dict[str, str] = {
    "daedalus.regression*/*batch*": "the published batch update is not exact; ours always is",
    "daedalus.capacity.skew*/*reference_code*": "follows from the batch update",
    "daedalus.recovery_time*/*reference_code*": "the published code counts the downtime twice",
    "daedalus.decision*/*reference_code*": (
        "the published code counts the downtime twice and holds lag against the present capacity"
    ),
}


def _each(answer: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    def run(case: Mapping[str, Any]) -> Any:
        given = case["input"]
        return [answer(example) for example in given] if isinstance(given, list) else answer(given)

    return run


def _recording(case: Mapping[str, Any]) -> dict[str, list[float]]:
    """The columns of the recording that a case names; the first one is left as text."""
    path = RECORDINGS / Path(case["source"]["local"]).name
    with path.open(encoding="utf-8") as file:
        first, *rows = csv.reader(file)
    return {
        name: [float(row[column]) for row in rows]
        for column, name in enumerate(first)
        if name != "time"
    }


# -- Daedalus --------------------------------------------------------------------------------------


def _regression(example: Example) -> dict[str, Any]:
    line = RunningRegression.through(example["cpu"], example["throughput"])
    answer = {"slope": line.slope, "intercept": line.intercept, "capacity_at_1": line.at(1.0)}
    return {"ols": answer, "reference_code_one_by_one": answer}


def _skew(case: Mapping[str, Any]) -> dict[str, Any]:
    columns = _recording(case)
    names = [name.removeprefix("cpu_") for name in columns if name.startswith("cpu_")]
    lines = [
        RunningRegression.through(columns[f"cpu_{name}"], columns[f"thr_{name}"]) for name in names
    ]
    # The case is the published code's: its skew is additive.
    fractions = full_cpu_fractions([line.x_mean for line in lines], skew="additive")
    capacities = executor_capacities_rps(lines, skew="additive")
    workers = [
        {
            "worker": name,
            "mean_cpu": line.x_mean,
            "mean_throughput": line.y_mean,
            "skew_factor": fraction,
            "capacity_ols": capacity,
        }
        for name, line, fraction, capacity in zip(names, lines, fractions, capacities, strict=True)
    ]
    return {
        "workers": workers,
        "sum_ols": sum(capacities),
        "observed_mean_total_throughput": sum(line.y_mean for line in lines),
    }


def _capacity_update(example: Example) -> dict[str, Any]:
    table = ScaleOuts()
    for seen in example["observations"]:
        table = table.seen(seen["parallelism"], seen["current_capacity"])
    sizes = range(1, example["max_scaleout"] + 1)
    return {
        "observed": {str(row.executors): row.capacity_rps for row in table.observed},
        "estimated_after_last": {
            str(size): ScaleOuts((), table.executors, table.current_rps).capacity_rps(size)
            for size in sizes
        },
        "get_capacity": {str(size): table.capacity_rps(size) for size in sizes},
    }


def _anomaly(case: Mapping[str, Any]) -> dict[str, Any]:
    columns = _recording(case)
    at_s = [int(t) for t in columns["t"]]
    behind = [w - t for w, t in zip(columns["workload"], columns["throughput"], strict=True)]
    usual = Normal()
    for value in behind:
        usual = usual.seen(value)
    unusual = [usual.is_unusual(value) for value in behind]
    found = episodes(at_s, unusual)
    return {
        "n": usual.samples,
        "mean_diff": usual.mean,
        "population_std": usual.deviation,
        "raw_anomalies": sum(unusual),
        "groups_after_gap30": [[episode.first_s, episode.last_s] for episode in found],
        "group_length_minus_30": [episode.length_s for episode in found],
        "average_recovery_s": mean_length_s(found),
    }


def _wape(example: Example) -> float | None:
    return wape(example["actual"], example["forecast"])


def _recovery_time(example: Example) -> dict[str, Any]:
    rate_rps = example["constant_workload"]
    recovery_s = predicted_recovery_s(
        np.full(example["forecast_len"], float(rate_rps)),
        example["capacity"],
        arrival_rps=rate_rps,
        lag_records=example["lag"],
        downtime_s=example["downtime"],
        checkpoint_interval_s=example["checkpoint_interval"],
    )
    return {"described_in_paper_s": recovery_s}


def _forecast(given: Example) -> Series:
    """Constant shapes have equal ends."""
    return np.linspace(given["first"], given["last"], given["n"])


def _decision(example: Example) -> dict[str, int]:
    most = example["maxs"]
    outlook = CapacityOutlook(
        executors=example["cur"],
        capacities_rps=[example["cap"].get(str(size), 0) for size in range(most + 1)],
        arrival_rps=example["wavg"],
        forecast_rps=_forecast(example["forecast"]),
        lag_records=example["lag"],
        since_rescale_s=example["since"],
    )
    # The case works off the lag as well, which its paper does not say.
    policy = Daedalus(most_executors=most, count_lag=True)
    return {"paper_variant": policy.plan(outlook).executors}


# -- Phoebe ----------------------------------------------------------------------------------------


def _catch_up(example: Example) -> float:
    return catch_up_whole_s(
        float(example["constant_workload"]),
        example["max_throughput"],
        example["horizon"],
        example["downtime"],
        example["last_checkpoint"],
    )


RUNNERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "daedalus.regression": _each(_regression),
    "daedalus.capacity": _skew,
    "daedalus.capacity_update": _each(_capacity_update),
    "daedalus.anomaly": _anomaly,
    "daedalus.wape": _each(_wape),
    "daedalus.recovery_time": _each(_recovery_time),
    "daedalus.decision": _each(_decision),
    "phoebe.recovery_time": _each(_catch_up),
}
