"""Explanations of claims that do not hold, tried: ``python -m tools.explain_studies``.

It writes ``src/penstock/lab/studies/data/explained.json``, which the pages of the studies show.
Run it again after a change of an engine; it takes minutes, most of them for the fits of koper2022.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core.model import Snapshot
from penstock.lab.studies import borkowski2019, koper2022
from penstock.lab.studies.borkowski_testbed import Cloud, CloudRun
from penstock.lab.studies.koper2022 import KoperCell, KoperResult
from penstock.lab.studies.koper_recordings import Fit
from penstock.lab.studies.skeleton import Bench, mean_of
from penstock.simulation.engines.continuous import ContinuousJob

PLACE = Path("src/penstock/lab/studies/data/explained.json")
Table = dict[str, Any]
SEEDS = (1, 2, 3)
RUNS = 2


def koper_k8(job: ContinuousJob) -> Table:
    """What may make the HPA at 50 % the one with the lowest latency on query 1."""
    variants = {
        "as it is": job,
        "restarts a quarter shorter": replace(
            job, restart_s=0.75 * job.restart_s, join_s=0.75 * job.join_s
        ),
        "no worker is cold after a restart": replace(job, warmup_s=0.0),
        "all capacity is used to catch up": replace(job, catch_up_fraction=1.0),
        "workers register at once": replace(job, wait_for_workers_s=0.0),
    }
    rows = {}
    for name, variant in variants.items():
        found = {s: _koper("q1", variant, "hpa", s) for s in (50, 70)}
        rows[name] = {
            f"hpa {setting}, {metric}": mean_of(metric, runs)
            for setting, runs in found.items()
            for metric in ("latency_s", "rescales")
        }
    paper = {"hpa 50, latency_s": 0.79, "hpa 50, rescales": 40.0}
    paper |= {"hpa 70, latency_s": 1.16, "hpa 70, rescales": 28.0}
    return {"study": "koper2022", "title": "K8 and K20: the HPA on query 1 by what a restart costs",
            "paper": paper, "rows": rows}  # fmt: skip


def koper_loops(job: ContinuousJob) -> Table:
    """What makes scalers grow in a loop on query 11."""
    sooner = replace(job, late_after_s=20.0, late_for_s=0.0)
    harder = replace(sooner, late_contention=0.2)
    variants = {
        "as fitted": job,
        "restarts 10 s longer": replace(job, restart_s=job.restart_s + 10.0),
        "restarts that take 0 to 2 times as long": replace(job, restart_spread=1.0),
        "late after 20 s instead of 55": sooner,
        "late after 20 s, and twice the loss": harder,
        "the same, and cpu sees 0.6 of the loss": replace(harder, pressed_loss_in_cpu=0.6),
    }
    settings = (("hpa", 70), ("dhalion-adapted", 1), ("dhalion-adapted", 5), ("ds2-adapted", 0))
    rows = {}
    for name, variant in variants.items():
        found = {f"{s} {value}": _koper("q11", variant, s, value) for s, value in settings}
        rows[name] = {
            f"{label}, {metric}": mean_of(metric, runs)
            for label, runs in found.items()
            for metric in ("workers", "reached_the_most")
        }
    paper = {"hpa 70": (7.88, 1.0), "dhalion-adapted 1": (7.62, 1.0)}
    paper |= {"dhalion-adapted 5": (3.85, 0.0), "ds2-adapted 0": (6.47, 1.0)}
    printed = {
        f"{label}, {metric}": value
        for label, pair in paper.items()
        for metric, value in zip(("workers", "reached_the_most"), pair, strict=True)
    }
    title = "K17 to K19: loops of growing on query 11 by what a late job loses"
    return {"study": "koper2022", "title": title, "paper": printed, "rows": rows}


def _koper(query: str, job: ContinuousJob, scaler: str, setting: int) -> list[KoperResult]:
    return [koper2022.run(KoperCell(query, job, scaler, setting, seed)) for seed in SEEDS]


class SlowGauge(CloudRun):
    """A testbed whose cpu gauge is the mean of the last ten readings, 5 s."""

    def read(self, now_s: float) -> Snapshot:
        seen = super().read(now_s)
        past = self.__dict__.setdefault("_past", {})
        shown = []
        for one in seen.executors:
            readings = past.setdefault(one.id, deque(maxlen=10))
            readings.append(one.cpu_fraction or 0.0)
            shown.append(replace(one, cpu_fraction=sum(readings) / len(readings)))
        return replace(seen, executors=tuple(shown))


class SharedHost(CloudRun):
    """A testbed on which VMs slow each other down: with 32 an image takes half as long again."""

    def _deal(self, until_s: float) -> None:
        slowed = 1.0 + 0.5 * (len(self._vms) - 1) / 31.0
        speeds = [vm.speed for vm in self._vms]
        for vm in self._vms:
            vm.speed /= slowed
        super()._deal(until_s)
        for vm, speed in zip(self._vms, speeds, strict=True):
            vm.speed = speed


class Started(Cloud, frozen=True, kw_only=True):
    """A testbed with runs of another kind."""

    kind: str = ""

    def start(self, rates_rps: Sequence[float], *, executors: int, seed: int, **_: Any) -> CloudRun:
        kinds: dict[str, Callable[..., CloudRun]] = {"slow": SlowGauge, "shared": SharedHost}
        return kinds.get(self.kind, CloudRun)(self, rates_rps, executors=executors, seed=seed)


def borkowski(bench: Bench, testbed: Cloud) -> Table:
    """What may make EKF use more VM time than GW, and image times differ."""
    fields = {name: getattr(testbed, name) for name in testbed.__struct_fields__}
    variants: Mapping[str, Cloud] = {
        "as it is": Started(**fields),
        "cpu is the mean of the last 5 s": Started(**fields, kind="slow"),
        "VMs slow each other down": Started(**fields, kind="shared"),
        "VMs take 20 to 40 s to start": Started(
            **{**fields, "startup": replace(testbed.startup, shortest_s=20.0, longest_s=40.0)}
        ),
    }
    rows = {}
    for name, variant in variants.items():
        rules = borkowski2019.rules_on(variant, 0.45)
        cells = {
            (scenario, rule): [
                borkowski2019.BorkowskiCell(scenario, rules[rule], 401 + i, variant)
                for i in range(RUNS)
            ]
            for scenario, rule in product(borkowski2019.SCENARIOS, borkowski2019.FILTERS)
        }
        found = bench.run_groups(borkowski2019.run, cells, name)
        rows[name] = _borkowski_row({
            (*key, metric): mean_of(metric, runs)
            for key, runs in found.items()
            for metric in ("vm_hours", "image_s")
        })  # fmt: skip
    paper = _borkowski_row({
        (scenario, rule, metric): value
        for scenario, rules_ in borkowski2019.PAPER.items()
        for rule, row in rules_.items()
        for metric, value in row.items()
    })  # fmt: skip
    title = "B2, B4, B7: VM time of EKF over GW, and the time of an image, by what the testbed does"
    return {"study": "borkowski2019", "title": title, "paper": paper, "rows": rows}


def _borkowski_row(values: Mapping[tuple[str, str, str], float]) -> dict[str, float]:
    row = {
        f"EKF over GW, {load}": values[load, "EKF", "vm_hours"] / values[load, "GW", "vm_hours"]
        for load in borkowski2019.SCENARIOS
    }
    images = {f"image_s, Pyramid, {r}": values["Pyramid", r, "image_s"] for r in ("PURE", "EKF")}
    return row | images


def main(names: Sequence[str]) -> None:
    tables = {one["title"]: one for one in msgspec.json.decode(PLACE.read_bytes())}
    bench = Bench(say=lambda text: print(text, file=sys.stderr))
    found: list[Table] = []
    if "borkowski2019" in names:
        found.append(borkowski(bench, borkowski2019.MIDDLE))
    if "koper2022" in names:
        fits = koper2022.prepare(bench)
        found += [koper_k8(fits[Fit("q1")]), koper_loops(fits[Fit("q11")])]
    tables |= {one["title"]: one for one in found}
    write(list(tables.values()))


def write(tables: Sequence[Table]) -> None:
    content = msgspec.json.format(msgspec.json.encode(tables), indent=1) + b"\n"
    PLACE.write_bytes(content)
    hashes = PLACE.with_name("sha256.json")
    known = msgspec.json.decode(hashes.read_bytes()) | {"explained": sha256(content).hexdigest()}
    hashes.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["koper2022", "borkowski2019"])
