"""What our runs say of the claims of Pfister et al. (2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.lab.experiments.statistics import Ecdf, mean
from penstock.lab.studies.study import Claim

if TYPE_CHECKING:
    from penstock.lab.studies.daedalus2024 import DaedalusResult

Results = Mapping[tuple[str, str], Sequence["DaedalusResult"]]

HPAS = ("HPA 80", "HPA 85")
#: "Typically", "almost always": so large a part.
MOSTLY, NEARLY_ALWAYS = 0.75, 0.9


def claims(results: Results) -> tuple[Claim, ...]:
    """D1 to D6."""
    return (
        _half_of_static(results),
        _fewer_than_hpa(results),
        _latency(results),
        _capacity(results),
        _forecast(results),
        _recovery(results),
    )


def _jobs(results: Results) -> list[str]:
    return list(dict.fromkeys(job for job, _ in results))


def _workers(results: Results, job: str, policy: str) -> float:
    return mean([one.workers for one in results[job, policy]])


def _half_of_static(results: Results) -> Claim:
    saved = {
        job: 1.0 - _workers(results, job, "Daedalus") / _workers(results, job, "static")
        for job in _jobs(results)
    }
    return Claim(
        "D1",
        "Daedalus uses more than 50 % fewer workers than the fixed fleet on all three jobs",
        all(part > 0.5 for part in saved.values()),
        saved,
        _because(
            all(part > 0.5 for part in saved.values()),
            "the sine of WordCount is on average 54 % of its peak: how near that peak comes to "
            "what 12 workers can do decides it, and the paper does not say",
        ),
    )


def _fewer_than_hpa(results: Results) -> Claim:
    evidence = {
        f"{job}, {policy}": _workers(results, job, policy)
        for job in _jobs(results)
        for policy in ("Daedalus", *HPAS)
    }
    holds = all(
        evidence[f"{job}, Daedalus"] < evidence[f"{job}, {hpa}"]
        for job in _jobs(results)
        for hpa in HPAS
    )
    reason = (
        "the HPAs hold more workers than needed only as far as cpu is counted against a request "
        "that is lower than what a worker may use"
    )
    return Claim(
        "D2", "Daedalus uses fewer workers than both HPAs", holds, evidence, _because(holds, reason)
    )


def _latency(results: Results) -> Claim:
    latency_ms = {
        (job, policy): mean([one.latency_ms for one in results[job, policy]])
        for job in _jobs(results)
        for policy in ("Daedalus", *HPAS)
    }
    evidence = {
        f"{job}, above {hpa}": latency_ms[job, "Daedalus"] - latency_ms[job, hpa]
        for job in _jobs(results)
        for hpa in HPAS
    }
    holds = all(abs(apart) <= 1600.0 for apart in evidence.values())
    return Claim(
        "D3",
        "The mean latency of Daedalus is within 1.6 s of that of the HPAs (ms)",
        holds,
        evidence,
        _because(
            holds,
            "Daedalus runs close to full, so a job that was stopped for a rescale near the peak "
            "takes minutes to catch up; the HPAs have room to catch up at once. Where the "
            "difference is far below zero it is the HPA that falls behind: it grows only when cpu "
            "is a tenth above its target, which a job with skew hardly shows",
        ),
    )


def _capacity(results: Results) -> Claim:
    errors = Ecdf.of([e for one in _daedalus(results) for e in one.capacity_errors] or [1.0])
    evidence = {
        "median error": errors.quantile(0.5),
        "p95 error": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "plans": float(len(errors.values)),
    }
    holds = errors.at(0.05) >= MOSTLY
    return Claim(
        "D4",
        "Estimates of capacity are typically within 5 % of what is so",
        holds,
        evidence,
        _because(holds, "the line of throughput over cpu is extrapolated far at low load"),
    )


def _forecast(results: Results) -> Claim:
    errors = Ecdf.of([e for one in _daedalus(results) for e in one.wapes] or [1.0])
    evidence = {
        "median WAPE": errors.quantile(0.5),
        "p95 WAPE": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "part above 25 %": 1.0 - errors.at(0.25),
    }
    holds = errors.at(0.05) >= MOSTLY
    return Claim(
        "D5",
        "The error of forecasts (WAPE) is typically below 5 %",
        holds,
        evidence,
        _because(holds, "at low load the noise of arrivals is large against their rate"),
    )


def _recovery(results: Results) -> Claim:
    """By the instrument of the study; the time until nothing waits is told beside it."""
    found = [recovery for one in _daedalus(results) for recovery in one.recoveries]
    pairs = [(one.predicted_s, one.measured_s) for one in found if one.measured_s is not None]
    exact = [(one.predicted_s, one.caught_up_s) for one in found if one.caught_up_s is not None]
    if not pairs:
        return Claim("D6", _D6, False, {"rescales": 0.0}, "no rescale was followed to its end")
    kept = mean([float(predicted_s >= took_s) for predicted_s, took_s in pairs])
    evidence = {
        "part that was faster than predicted": kept,
        "rescales": float(len(pairs)),
        "median predicted (s)": Ecdf.of([predicted_s for predicted_s, _ in pairs]).quantile(0.5),
        "median measured (s)": Ecdf.of([took_s for _, took_s in pairs]).quantile(0.5),
    }
    if exact:
        evidence["part that had nothing waiting by then"] = mean(
            [float(predicted_s >= took_s) for predicted_s, took_s in exact]
        )
    holds = kept >= NEARLY_ALWAYS
    return Claim(
        "D6",
        _D6,
        holds,
        evidence,
        _because(
            holds,
            "the downtime is counted once here, as the paper says; its published code counts it "
            "twice",
        ),
    )


_D6 = "The predicted recovery time is nearly always at least the measured one"


def _daedalus(results: Results) -> list[DaedalusResult]:
    return [one for job in _jobs(results) for one in results[job, "Daedalus"]]


def _because(holds: bool, reason: str) -> str:
    return "" if holds else reason
