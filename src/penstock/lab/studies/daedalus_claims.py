"""What our runs say of the claims of Pfister et al. (2024)."""

from __future__ import annotations

from penstock.lab.experiments.statistics import Ecdf, mean
from penstock.lab.studies.daedalus_tables import Results
from penstock.lab.studies.skeleton import prose
from penstock.lab.studies.study import Claim

TEXT = prose("daedalus2024")
HPAS = ("HPA 80", "HPA 85")
#: What "typically" and "nearly always" mean here, as a part of all cases.
MOSTLY, NEARLY_ALWAYS = 0.75, 0.9


def claims(results: Results) -> tuple[Claim, ...]:
    """D1 to D6."""
    jobs = list(dict.fromkeys(job for job, _ in results))
    workers, latency_ms = (
        {key: mean([getattr(one, name) for one in runs]) for key, runs in results.items()}
        for name in ("workers", "latency_ms")
    )
    saved = {job: 1.0 - workers[job, "Daedalus"] / workers[job, "static"] for job in jobs}
    pairs = [(job, hpa) for job in jobs for hpa in HPAS]
    fewer = all(workers[job, "Daedalus"] < workers[job, hpa] for job, hpa in pairs)
    above_ms = {
        f"{job}, above {hpa}": latency_ms[job, "Daedalus"] - latency_ms[job, hpa]
        for job, hpa in pairs
    }
    return (
        TEXT.claim("D1", all(part > 0.5 for part in saved.values()), saved),
        TEXT.claim(
            "D2",
            fewer,
            {f"{job}, {who}": workers[job, who] for job in jobs for who in ("Daedalus", *HPAS)},
        ),
        TEXT.claim("D3", all(abs(apart) <= 1600.0 for apart in above_ms.values()), above_ms),
        _capacity(results),
        _forecast(results),
        _recovery(results),
    )


def _capacity(results: Results) -> Claim:
    errors = _of_daedalus(results, "capacity_errors")
    evidence = {
        "median error": errors.quantile(0.5),
        "p95 error": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "plans": float(len(errors.values)),
    }
    return TEXT.claim("D4", errors.at(0.05) >= MOSTLY, evidence)


def _forecast(results: Results) -> Claim:
    errors = _of_daedalus(results, "wapes")
    evidence = {
        "median WAPE": errors.quantile(0.5),
        "p95 WAPE": errors.quantile(0.95),
        "part below 5 %": errors.at(0.05),
        "part above 25 %": 1.0 - errors.at(0.25),
    }
    return TEXT.claim("D5", errors.at(0.05) >= MOSTLY, evidence)


def _of_daedalus(results: Results, name: str) -> Ecdf:
    """Errors of all runs of Daedalus; 100 % if there are none."""
    runs = [one for (_, policy), group in results.items() if policy == "Daedalus" for one in group]
    return Ecdf.of([error for one in runs for error in getattr(one, name)] or [1.0])


def _recovery(results: Results) -> Claim:
    """By the instrument of the study; the time until nothing waits is evidence beside it."""
    runs = [one for (_, policy), group in results.items() if policy == "Daedalus" for one in group]
    found = [recovery for one in runs for recovery in one.recoveries]
    pairs = [(one.predicted_s, one.measured_s) for one in found if one.measured_s is not None]
    exact = [(one.predicted_s, one.caught_up_s) for one in found if one.caught_up_s is not None]
    if not pairs:
        return TEXT.claim("D6", False, {"rescales": 0.0}, TEXT.text("D6 without evidence"))
    in_time = mean([float(predicted_s >= took_s) for predicted_s, took_s in pairs])
    evidence = {
        "part that was faster than predicted": in_time,
        "rescales": float(len(pairs)),
        "median predicted (s)": Ecdf.of([predicted_s for predicted_s, _ in pairs]).quantile(0.5),
        "median measured (s)": Ecdf.of([took_s for _, took_s in pairs]).quantile(0.5),
    }
    if exact:
        evidence["part that had nothing waiting by then"] = mean(
            [float(predicted_s >= took_s) for predicted_s, took_s in exact]
        )
    return TEXT.claim("D6", in_time >= NEARLY_ALWAYS, evidence, TEXT.text("D6 counted once"))
