"""What Koper (2022) concludes from its tables, checked on ours."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec.structs import replace

from penstock.lab.studies.skeleton import prose
from penstock.lab.studies.study import Claim, Comparison

TEXT = prose("koper2022")
QUERIES = ("q1", "q3", "q11")
TARGETS = (30, 50, 70)
FACTORS = (0, 33, 66)
THRESHOLDS = (1, 5, 10)

Column = dict[str, dict[str, float]]  #: One metric of our tables: by query and the label of a row.


def claims(tables: Sequence[Comparison]) -> tuple[Claim, ...]:
    """K1 to K11 for the tables of queries 1, 3 and 11."""
    workers, latency, total, rescales = (
        {query: _ours(table, metric) for query, table in zip(QUERIES, tables, strict=True)}
        for metric in ("workers", "latency", "latency + workers", "rescales")
    )
    return (
        *_about_varga(workers),
        _k3(latency),
        *_about_adapted_ds2(latency, rescales),
        _k6(workers),
        _extreme("K7", latency["q11"], max, "hpa 90"),
        _extreme("K8", latency["q1"], min, "hpa 50"),
        _k9(total["q3"]),
        _k10(workers),
        _k11(total["q11"]),
    )


def with_single_runs(judged: Sequence[Claim], alone: Sequence[Sequence[Claim]]) -> Iterator[Claim]:
    """Each claim with the part of the seeds on which it holds alone: the paper has one run."""
    for i, claim in enumerate(judged):
        part = {"part of single runs in which it holds": fmean(each[i].holds for each in alone)}
        yield replace(claim, evidence=claim.evidence | part)


def _ours(table: Comparison, metric: str) -> dict[str, float]:
    return {
        entry.label: value for entry in table.entries if (value := entry.ours[metric]) is not None
    }


def _about_varga(workers: Column) -> tuple[Claim, Claim]:
    rows = [(query, target) for query in workers for target in TARGETS]
    means = {f"{q} varga-v1 {target}": workers[q][f"varga-v1 {target}"] for q, target in rows}
    cuts = {
        f"{q} {target}": 1.0 - workers[q][f"varga-v2 {target}"] / workers[q][f"varga-v1 {target}"]
        for q, target in rows
    }
    low = _those(means, lambda value: value <= 10.0, "{name} uses {value:.1f}")
    less = _those(cuts, lambda cut: cut <= 0.45, "{name} by {value:.0%}")
    return (
        TEXT.claim("K1", not low, means, "; ".join(low)),
        TEXT.claim("K2", not less, cuts, ", ".join(less)),
    )


def _those(values: Mapping[str, float], wrong: Callable[[float], bool], text: str) -> list[str]:
    """The values that contradict a claim, each as a text."""
    return [text.format(name=name, value=v) for name, v in values.items() if wrong(v)]


def _k3(latency: Column) -> Claim:
    worst = {query: max(latency[query], key=latency[query].__getitem__) for query in ("q1", "q3")}
    other = [f"on {query} it is {name}" for query, name in worst.items() if name != "ds2 0"]
    if "hpa 90" in worst.values():
        other.append(TEXT.text("K3 HPA at 90 %"))
    evidence = {}
    for query, name in worst.items():
        evidence[f"{query} ds2 0"] = latency[query]["ds2 0"]
        evidence[f"{query} worst ({name})"] = latency[query][name]
    return TEXT.claim("K3", not other, evidence, "; ".join(other))


def _about_adapted_ds2(latency: Column, rescales: Column) -> tuple[Claim, Claim]:
    more = {
        f"{query} {factor}": column[f"ds2-adapted {factor}"] - column[f"ds2 {factor}"]
        for query, column in rescales.items()
        for factor in FACTORS
    }
    ratios = {
        f"{q} {factor}": latency[q][f"ds2-adapted {factor}"] / latency[q][f"ds2 {factor}"]
        for q in ("q1", "q3")
        for factor in FACTORS
    }
    oftener = _those(more, lambda value: value > 0.0, "{name} by {value:.1f}")
    later = _those(ratios, lambda ratio: ratio >= 1.0, "{name} ({value:.2f} times)")
    fewer = {f"{name}: adapted less plain": value for name, value in more.items()}
    over = {f"{name}: adapted over plain": ratio for name, ratio in ratios.items()}
    return (
        TEXT.claim("K4", not oftener, fewer, ", ".join(oftener)),
        TEXT.claim("K5", not later, over, ", ".join(later)),
    )


def _k6(workers: Column) -> Claim:
    means = {
        f"{query} hpa {target}": column[f"hpa {target}"]
        for query, column in workers.items()
        for target in (50, 70, 90)
    }
    broken = [
        query
        for query, column in workers.items()
        if not column["hpa 50"] > column["hpa 70"] > column["hpa 90"]
    ]
    return TEXT.claim("K6", not broken, means, ", ".join(broken))


def _extreme(
    claim: str, column: Mapping[str, float], pick: Callable[..., str], expected: str
) -> Claim:
    """K7 and K8: one setting is the worst or the best of a query."""
    found = pick(column, key=column.__getitem__)
    evidence = {expected: column[expected], found: column[found]}
    near = claim == "K8" and found.startswith("hpa")
    where = f"{found}: {TEXT.text('K8 another HPA')}" if near else found
    return TEXT.claim(claim, found == expected, evidence, where)


def _k9(total: Mapping[str, float]) -> Claim:
    ranking = sorted(total, key=total.__getitem__)
    top = {name: total[name] for name in ranking[:3]}
    places = {
        f"place of dhalion-adapted {threshold}": ranking.index(f"dhalion-adapted {threshold}") + 1.0
        for threshold in THRESHOLDS
    }
    holds = all(name.startswith("dhalion-adapted") for name in top)
    return TEXT.claim("K9", holds, {**top, **places}, ", ".join(top))


def _k10(workers: Column) -> Claim:
    ranges = {}
    for query in ("q1", "q3"):
        means = [workers[query][f"dhalion-adapted {threshold}"] for threshold in THRESHOLDS]
        ranges[f"{query} most over least"] = max(means) / min(means) - 1.0
    broken = _those(ranges, lambda value: value >= 0.15, "{name} by {value:.0%}")
    return TEXT.claim("K10", not broken, ranges, "; ".join(broken))


def _k11(total: Mapping[str, float]) -> Claim:
    best = min(total, key=total.__getitem__)
    variant = min((name for name in total if name.startswith("ds2")), key=total.__getitem__)
    evidence = {best: total[best], variant: total[variant]}
    return TEXT.claim("K11", best.startswith("ds2"), evidence, best)
