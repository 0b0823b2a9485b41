"""Varga, Balassi, Kiss (2021): how long a job's state takes to be saved and to be loaded.

The only study that runs on the real thing: a Spark cluster on this machine, RocksDB, keyed state
of random strings. What the paper calls a savepoint is here the commit of a batch that has set all
of the state, and what it calls a restore the loading of it by a query that starts again. It is
measured in parts of some minutes each, which a file of results can keep.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import atanh, sqrt, tanh
from statistics import fmean

import msgspec

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import Regression, regression
from penstock.lab.studies.claims import Computed, judge
from penstock.lab.studies.skeleton import Bench, StudyPlan, printed, prose
from penstock.lab.studies.study import Chart, ChartLine, Claim, Comparison, Entry, Metric, Study
from penstock.lab.studies.varga_job import EXECUTORS, Order, StatePart, StateSample
from penstock.testbed import Testbed
from penstock.testbed.jobs.state_size import STRING_CHARACTERS, state_settings

SIZES_BYTES = (0.1e9, 0.25e9, 0.5e9, 1e9, 2e9, 4e9)
STORES = (1, 2, 4, 8)
#: All sizes with the most stores, and one size with all numbers of stores; the smallest first.
MIDDLE_BYTES = 0.5e9
PARTS = tuple(
    StatePart(size, stores, changelog)
    for size in SIZES_BYTES
    for changelog in (False, True)
    for stores in STORES
    if size == MIDDLE_BYTES or stores == STORES[-1]
)
#: From the first share of what varies on, a line explains it (the paper finds 0.83 and 0.91); below
#: the second it explains hardly anything.
EXPLAINS, HARDLY = 0.7, 0.5
SAME_RATE = 1.25  #: Rates that differ by no more than this factor are the same.

WHATS = ("snapshot", "load", "restart", "rescale")
Samples = Sequence[StateSample]
TEXT = prose("varga2021")
PAPER = printed("varga2021")["section 5.4"]


def study(parts: Sequence[StatePart] = PARTS) -> StudyPlan[None, None]:
    """Measure on a real cluster, one part at a time; there is nothing to simulate."""

    def prepare(bench: Bench) -> list[StateSample]:
        found = bench.run(measured, parts, "measuring parts on real Spark", measures=True)
        return [sample for part in found for sample in part]

    return StudyPlan(prepare, lambda samples, _: findings(samples))


def measured(part: StatePart) -> list[StateSample]:
    """One part, on a cluster and a driver of its own."""
    stores = {"spark.sql.shuffle.partitions": str(part.stores), "spark.executor.memory": "1g"}
    settings = stores | state_settings(changelog=part.changelog)
    with Testbed(slots=EXECUTORS, kafka=False, say=lambda _: None) as bed:
        conf = bed.spark_conf(initial_executors=EXECUTORS, **settings)
        order = msgspec.json.encode(Order(part, str(bed.run_directory / "state"), conf)).decode()
        argv = [sys.executable, "-m", "penstock.lab.studies.varga_job", order]
        driver = subprocess.run(argv, capture_output=True, env=bed.driver_environment, check=False)
    if driver.returncode:
        last = driver.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ConfigError(f"the state-size job failed: {(last or ['no reason given'])[0]}")
    return msgspec.json.decode(
        b"[" + b",".join(driver.stdout.splitlines()) + b"]", type=list[StateSample]
    )


def findings(samples: Samples) -> Study:
    """Lines over size and over the number of stores, and the claims."""
    plain, most = _chosen(samples, changelog=False), max(one.stores for one in samples)
    kinds = {(one.what, *_kind(one)) for one in samples}
    rates = {f"{w}, MB/s of a store": 1e-6 / most / over_size(plain, w).slope for w in WHATS[:2]}
    return TEXT.findings(
        [_measured_table(samples), _lines_table(samples)],
        claims(plain),
        [TEXT.calibration("state", rates)],
        figures=[
            _chart(samples, what, over) for over in ("MB of state", "stores") for what in WHATS
        ],
        executors=EXECUTORS,
        most=most,
        characters=STRING_CHARACTERS,
        sizes=_listed(sorted({round(one.state_bytes / 1e6) for one in samples})),
        stores=_listed(sorted({one.stores for one in samples})),
        repeats=len(samples) // len(kinds),
    )


def _kind(one: StateSample) -> tuple[float, int, bool]:
    return one.state_bytes, one.stores, one.changelog


def _chosen(samples: Samples, *, changelog: bool) -> list[StateSample]:
    return [one for one in samples if one.changelog == changelog]


def over_size(samples: Samples, what: str, value: str = "max_s") -> Regression:
    """Seconds over bytes of all state, with the most stores."""
    most = max(one.stores for one in samples)
    chosen = [one for one in samples if one.what == what and one.stores == most]
    return regression([one.state_bytes for one in chosen], [getattr(one, value) for one in chosen])


def by_stores(samples: Samples, what: str) -> list[StateSample]:
    """The samples of the size that has most of them: that with all numbers of stores."""
    size = Counter(one.state_bytes for one in samples).most_common(1)[0][0]
    return [one for one in samples if (one.what, one.state_bytes) == (what, size)]


def done_s(sample: StateSample) -> float:
    """Until all stores are done, as many at once as there are executors."""
    return sample.mean_s * sample.stores / min(EXECUTORS, sample.stores)


def r_squared_95(line: Regression, count: int) -> tuple[float, float]:
    """From where to where R^2 lies, by Fisher's transformation of r.

    >>> [round(end, 2) for end in r_squared_95(Regression(1.0, 0.0, 0.81, 0.9, 1.1, 0.0), 28)]
    [0.63, 0.91]
    """
    if count < 4 or line.r_squared >= 1.0:
        return line.r_squared, line.r_squared
    middle, half = atanh(sqrt(line.r_squared)), 1.96 / sqrt(count - 3)
    return tanh(max(0.0, middle - half)) ** 2, tanh(middle + half) ** 2


def claims(samples: Samples) -> list[Claim]:
    """By what was measured without changelogs: as in the paper all of the state is written."""
    lines = {what: over_size(samples, what) for what in WHATS}
    seen = {what: _evidence(samples, what, line) for what, line in lines.items()}
    linear = {w: line.r_squared >= EXPLAINS and line.slope_low > 0.0 for w, line in lines.items()}
    slower = [what for what in WHATS[2:] if _is_clear(lines[what])]
    downtimes = {f"{w}, {name}": value for w in WHATS[2:] for name, value in seen[w].items()}
    both = {value: over_size(samples, "load", value).r_squared for value in ("max_s", "mean_s")}
    found: dict[str, Computed] = {
        "V1": (linear["snapshot"], seen["snapshot"], ""),
        "V2": (linear["load"], seen["load"], ""),
        "V4": (not slower, downtimes, f"{' and '.join(slower)} take longer with more state"),
        "V5": (both["max_s"] > both["mean_s"], both, ""),
    }
    varied = {what: by_stores(samples, what) for what in WHATS[:2]}
    if len({one.stores for one in varied["load"]}) > 1:
        over = {
            w: regression([float(o.stores) for o in v], [done_s(o) for o in v])
            for w, v in varied.items()
        }
        clear = [what for what, line in over.items() if _is_clear(line)]
        parts = {f"{what} over stores, R^2": line.r_squared for what, line in over.items()}
        found["V3"] = not clear, parts, f"it does for {' and '.join(clear)}"
        rates: dict[str, list[float]] = {}
        for one in varied["snapshot"]:
            name = f"MB/s, stores: {one.stores}"
            rates.setdefault(name, []).append(1e-6 * one.state_bytes / done_s(one))
        means = {name: fmean(each) for name, each in rates.items()}
        found["V6"] = max(means.values()) <= SAME_RATE * min(means.values()), means, ""
    return judge(TEXT, {}, found)


def _is_clear(line: Regression) -> bool:
    return line.p < 0.05 and line.r_squared > HARDLY


def _evidence(samples: Samples, what: str, line: Regression) -> dict[str, float]:
    most = max(one.stores for one in samples)
    low, high = r_squared_95(line, sum(o.what == what and o.stores == most for o in samples))
    found = {"R^2": line.r_squared, "R^2, 95 % from": low, "R^2, 95 % to": high}
    slopes = {"s per GB": line.slope, "from": line.slope_low, "to": line.slope_high}
    return found | {name: 1e9 * value for name, value in slopes.items()}


def _measured_table(samples: Samples) -> Comparison:
    entries = []
    for kind in sorted(set(map(_kind, samples))):
        ours = {}
        for what in WHATS:
            chosen = [one for one in samples if (one.what, *_kind(one)) == (what, *kind)]
            ours[what] = fmean(one.mean_s for one in chosen)
            ours[f"longest {what}"] = fmean(one.max_s for one in chosen)
        label = f"{kind[0] / 1e6:.0f} MB, {kind[1]} stores, {_named(kind[2])}"
        entries.append(Entry(label, {}, {**ours}))
    names = ("snapshot", "longest snapshot", "load", "longest load", "restart", "rescale")
    title = "Times of a store (mean and longest), and downtimes"
    return Comparison(title, tuple(Metric(name, "s", 2) for name in names), tuple(entries))


def _named(changelog: bool) -> str:
    return "changelog" if changelog else "whole snapshots"


def _lines_table(samples: Samples) -> Comparison:
    entries = []
    for changelog, value in product(sorted({o.changelog for o in samples}), ("max_s", "mean_s")):
        chosen = _chosen(samples, changelog=changelog)
        for what in WHATS if value == "max_s" else WHATS[:2]:
            name = f"{what} over size" + (", mean of stores" if value == "mean_s" else "")
            ours = _evidence(chosen, what, over_size(chosen, what, value))
            paper = {} if changelog else PAPER.get(name, {})
            entries.append(Entry(f"{name}, {_named(changelog)}", {**paper}, {**ours}))
    metrics = tuple(Metric(name, "", 3) for name in entries[0].ours)
    return Comparison("Lines", metrics, tuple(entries))


def _chart(samples: Samples, what: str, over: str) -> Chart:
    """All repetitions: over size with the most stores, over stores at one size."""
    most, clouds, note = max(one.stores for one in samples), [], ""
    for changelog in sorted({one.changelog for one in samples}):
        chosen = _chosen(samples, changelog=changelog)
        if over == "stores":
            shown = by_stores(chosen, what)
        else:
            shown = [one for one in chosen if (one.what, one.stores) == (what, most)]
            line = over_size(chosen, what)
            note += f"{_named(changelog)}: R² {line.r_squared:.2f}, {1e9 * line.slope:.1f} s/GB. "
        x = [float(o.stores) if over == "stores" else 1e-6 * o.state_bytes for o in shown]
        clouds.append(ChartLine(_named(changelog), x, [one.max_s for one in shown]))
    title = f"{what} over {over}, longest of all stores"
    return Chart(title, over, "s", tuple(clouds), drawn="points", note=note)


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
