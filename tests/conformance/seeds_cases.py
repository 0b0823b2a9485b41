"""How the numeric cases of the studies are put to our code.

Each entry takes a whole case and answers in the shape of its `expected`; the comparison is made
by whoever runs the cases. The longest family of a case's dotted id decides. An input that is a
list of examples gives a list of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.model import MOST_EXECUTORS, Decision, Fleet, Limits, Reason, Snapshot
from penstock.policies import backlog_threshold, dhalion_adapted
from penstock.policies.algorithms import measurements
from penstock.policies.algorithms.dataflow import (
    TrueRates,
    demands,
    with_margin,
)
from penstock.policies.kubernetes import varga
from penstock.policies.kubernetes.metrics import MAX_INT32, Pod, Tolerance, divide
from penstock.policies.queueing.formulas import Station, erlang_c, response_time_s
from tests.conformance.reference import heron, studies
from tests.conformance.reference.heron import deal, fit
from tests.conformance.reference.keda import partition_lag
from tests.conformance.reference.kubernetes import ObjectMetric, Scale, View, strongest
from tests.conformance.reference.studies import allen_cunneen_wait

Example = Mapping[str, Any]

#: Where our answer is another on purpose: pattern of ``id/key`` and why.
DIFFERS: dict[str, str] = {
    "pulsar.allen_cunneen*/*P_printed": (
        "the printed rho^sqrt(k+1) is wrong at M/M/1; we offer Erlang C and rho^((k+1)/2)"
    ),
    "pulsar.allen_cunneen*/*T_printed": "follows from P_printed",
}


def _each(answer: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    def run(case: Mapping[str, Any]) -> Any:
        given = case["input"]
        return [answer(example) for example in given] if isinstance(given, list) else answer(given)

    return run


def _numbered(values: list[float]) -> dict[str, float]:
    return {f"i{number}": value for number, value in enumerate(values, start=1)}


def _bounded(executors: int, least: int = 1, most: int = MAX_INT32) -> int:
    wish = Decision.of(executors, Reason("case", "as the case has it"))
    snapshot = Snapshot(0.0, Fleet(executors, executors, executors))
    limits = Limits(min_executors=least, max_executors=min(most, MOST_EXECUTORS))
    return Guards(limits).check(wish, snapshot, Knowledge()).target_executors


# -- DS2 -------------------------------------------------------------------------------------------


def _ds2(example: Example) -> dict[str, Any]:
    rates = next(value for key, value in example.items() if key.startswith("aggregated_rates"))
    instances = example["instances"]
    fed = {target for _, target in example["edges"]}
    named = [name for name in instances if name not in fed]
    operators = [
        TrueRates(
            name,
            tuple(feed for feed, target in example["edges"] if target == name),
            instances[name],
            rates[name][0],
            rates[name][1],
        )
        for name in instances
        if name in fed
    ]
    asked = example.get("source_true_rate_per_instance") or {}
    sources_rps = {
        name: _ds2_source_rps(asked.get(name), instances[name], rates[name]) for name in named
    }
    found = demands(operators, sources_rps)
    factor = 1.0 + example.get("factor", 0.0)
    return {
        "parallelism": {name: with_margin(d.instances, factor) for name, d in found.items()},
        "fractional": {name: demand.instances for name, demand in found.items()},
        "target_rate": {name: demand.target_rps for name, demand in found.items()},
        "sources_keep_parallelism": found.keys().isdisjoint(named),
    }


def _ds2_source_rps(per_instance: float | None, instances: float, rates: list[float]) -> float:
    """A given rate is per instance, -1 means the observed output, none the true output."""
    _, true_output, _, observed_output = rates
    if per_instance is None:
        return true_output
    return observed_output if per_instance == -1 else per_instance * instances


def _consider_change(example: Example) -> bool:
    return studies.worth_reconfiguring(example["before"], example["after"])


# -- Dhalion as in Heron ---------------------------------------------------------------------------


def _scale_up(example: Example) -> dict[str, int]:
    per_instance = example["backpressure_ms_per_instance"]
    return {"new_parallelism": measurements.grown(example["instances"], per_instance)}


def _backpressure(example: Example) -> dict[str, int]:
    noise_ms = example.get("noise_filter_ms", measurements.NOISE_MS)
    found = heron.backpressure(example["bp"], noise_ms)
    return {
        "component_symptoms": int(found.present),
        "instance_symptoms": len(found.instances),
    }


def _growing(example: Example) -> dict[str, bool]:
    limit_per_s = example.get("limit_per_s", measurements.QUEUE_GROWTH_RPS)
    return {"growing": heron.growing(example["t"], example["q"], limit_per_s)}


def _skew(default_ratio: float) -> Callable[[Example], dict[str, Any]]:
    def answer(example: Example) -> dict[str, Any]:
        high, low = measurements.skew(example["mean"], example.get("ratio", default_ratio))
        return {"skew": bool(high), "positive": high, "negative": low}

    return answer


def _large(example: Example) -> bool:
    return heron.large(example["values"], example.get("limit", heron.LARGE_QUEUE_RECORDS))


def _diagnosis(example: Example) -> Any:
    """Which diagnoser is asked follows from what it needs: rates and queues, queues, neither."""
    seen = example["symptoms"]
    if "rate" in example:
        rate, queue = _numbered(example["rate"]), _numbered(example["queue"])
        skewed = heron.overloaded_instances(seen, rate, queue)
        return {"data_skew": list(skewed)} if skewed else "none from DataSkewDiagnoser"
    if "queue" in example:
        slow = heron.slow_instances(seen, _numbered(example["queue"]))
        return {"slow_instance": list(slow)} if slow else "none from SlowInstanceDiagnoser"
    if measurements.under_provisioned(seen):
        return "under_provisioning"
    return "none from UnderProvisioningDiagnoser"


# -- ESPA ------------------------------------------------------------------------------------------


def _overprovision(example: Example) -> dict[str, int]:
    wanted, factor = example["parallelism"], example["factor"]
    if isinstance(wanted, Mapping):
        return {name: with_margin(count, factor) for name, count in wanted.items()}
    return {"result": with_margin(wanted, factor)}


def _adapt_to_available(example: Example) -> dict[str, Any]:
    allotment = fit(example["desired"], example["available"])
    instances = allotment.instances
    words = {"result": instances, "computed_result": instances, "sum": allotment.slots}
    return {**instances, **words}


def _operator_factor(example: Example) -> dict[str, float]:
    factor = heron.growth_factor(example["max_upstream_backpressure_fraction"])
    return {"factor": factor, "desired": with_margin(example["parallelism"], factor)}


def _source_factor(example: Example) -> dict[str, float]:
    factor = heron.source_growth_factor(example["pending_rate"], example["consumed_rate"])
    return {"factor": factor, "desired": with_margin(example["parallelism"], factor)}


def _replicas(parallelism: int, *metrics: ObjectMetric) -> int:
    """The autoscaler of Kubernetes without its tolerance, as ESPA has it."""
    pods = tuple(Pod(str(number)) for number in range(parallelism))
    view = View(Scale(parallelism, parallelism, pods), tolerance=Tolerance(0.0, 0.0))
    replicas = strongest(metrics, view).replicas
    assert replicas is not None
    return _bounded(replicas)


def _espa_hpa(example: Example) -> int:
    metric = ObjectMetric(example["target"], example["metric"])
    return _replicas(example["parallelism"], metric)


def _espa_varga(example: Example) -> int:
    used = ObjectMetric(example["util_target"], example["utilization"])
    grows = ObjectMetric(example["lag_target"], example["rel_lag"])
    return _replicas(example["parallelism"], used, grows)


# -- Varga, Koper ----------------------------------------------------------------------------------


def _varga_formula(example: Example) -> float:
    return varga.lag_metric(
        example["totalLag"],
        example["threshold"],
        slope_rps=example["deriv"],
        rate_rps=example["rate"],
    )


def _total_lag(example: Example) -> dict[str, float]:
    partitions = example["partitions"]
    committed = deal(example.get("consumed", 0), partitions)
    ends = deal(example["records"], partitions)
    lags = iter([partition_lag(*offsets).scaling for offsets in zip(committed, ends, strict=True)])
    shares = [list(islice(lags, count)) for count in deal(partitions, example["consumers"])]
    # Larger shares are dealt first, so the worst partition of a task is its first.
    tasks = [studies.SourceTask(share[0], len(share)) for share in shares]
    return {
        "records_lag_max_per_instance": tasks[0].max_lag_records,
        "assigned_partitions": tasks[0].partitions,
        "totalLag": studies.total_lag(tasks),
    }


def _varga_utilization(example: Example) -> dict[str, float]:
    return {"replica_multiplier": divide(example["current"], example["target"])}


def _grown(example: Example) -> dict[str, int]:
    wanted = dhalion_adapted.grown(
        example["current"],
        example["input_rate"],
        example["sink_throughput"],
        example["overprovision"],
    )
    return {"new": _bounded(wanted, most=example["max"])}


def _shrunk(example: Example) -> int:
    return _bounded(dhalion_adapted.shrunk(example["current"], example["pct"]), example["min"])


# -- Russo Russo, Borkowski ------------------------------------------------------------------------


def _allen_cunneen(example: Example) -> dict[str, float]:
    station = Station(example["lambda"], example["mu"], example["ca"] ** 2, example["cs"] ** 2)
    servers = example["k"]
    rho = station.utilisation(servers)
    closed_form = allen_cunneen_wait(servers, rho)
    return {
        **example,
        "rho": rho,
        "P_exponent_(k+1)/2": closed_form,
        "P_erlangC_exact": erlang_c(servers, station.offered),
        "T_exponent_(k+1)/2": response_time_s(station, servers, closed_form),
        "T_with_erlangC": response_time_s(station, servers),
    }


def _threshold(example: Example) -> int:
    wanted = backlog_threshold.stepped(
        example["k"], example["Q"], low_records=example["Tin"], high_records=example["Tout"]
    )
    return _bounded(wanted, most=example["max"])


def _bootstrap(example: Example) -> dict[str, float]:
    start = studies.bootstrap(example["z"], example["R"])
    return {"x0": start.x0, "P0": start.p0, "Q": start.q}


def _scalar_run(example: Example) -> dict[str, Any]:
    def run(*, posterior_update: bool) -> list[dict[str, float]]:
        steps = studies.kalman_run(
            example["z"],
            example["D"],
            a=example["a"],
            b=example["b"],
            x0=example["x0"],
            p0=example["P0"],
            q=example["Q"],
            r=example["R"],
            posterior_update=posterior_update,
        )
        return [{"prior": s.prior, "gain": s.gain, "x": s.x, "P": s.p} for s in steps]

    return {
        "with_posterior_covariance_update": run(posterior_update=True),
        "as_printed_without_it": run(posterior_update=False),
    }


RUNNERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "ds2": _each(_ds2),
    "ds2.manager": _each(_consider_change),
    "dhalion.heron.scaleup": _each(_scale_up),
    "dhalion.heron.backpressure_detector": _each(_backpressure),
    "dhalion.heron.growing_queue": _each(_growing),
    "dhalion.heron.queue_skew": _each(_skew(heron.QUEUE_SKEW_RATIO)),
    "dhalion.heron.rate_skew": _each(_skew(measurements.RATE_SKEW_RATIO)),
    "dhalion.heron.large_queue": _each(_large),
    "dhalion.heron.diagnosis": _each(_diagnosis),
    "espa.overprovision": _each(_overprovision),
    "espa.adapt_to_available": _each(_adapt_to_available),
    "espa.dhalion.operator_factor": _each(_operator_factor),
    "espa.dhalion.source_factor": _each(_source_factor),
    "espa.hpa": _each(_espa_hpa),
    "espa.varga": _each(_espa_varga),
    "varga.formula": _each(_varga_formula),
    "varga.paper.total_lag": _each(_total_lag),
    "varga.paper.utilization": _each(_varga_utilization),
    "koper.dhalion_adapted.up": _each(_grown),
    "koper.dhalion_adapted.down": _each(_shrunk),
    "pulsar.allen_cunneen": _each(_allen_cunneen),
    "pulsar.threshold": _each(_threshold),
    "ekf.bootstrap": _each(_bootstrap),
    "ekf.scalar_run": _each(_scalar_run),
}
