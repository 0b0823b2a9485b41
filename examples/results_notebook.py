# %% [markdown]
# # Read results and a journal in a notebook of your own
#
# `penstock compare --out results.parquet` (or `.csv`) writes one row per run,
# `penstock simulate --journal run.jsonl` one line per turn of the loop. Both are plain files: this
# script needs Penstock and nothing else. In Jupyter or an editor that knows `# %%`, run it cell by
# cell; with your own files, set the two paths below.

# %%
from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from penstock.core.journal import read_header, read_steps

# %% [markdown]
# ## Make something to look at
# Leave this cell out when you have files of your own.

# %%
made = tempfile.TemporaryDirectory(prefix="penstock-notebook-")
folder = Path(made.name)
results, journal = folder / "results.csv", folder / "run.jsonl"
load = "sine:mean=40k,amplitude=25k,period=2h"
quick = ["--duration", "2h", "--workload", load]
penstock = [sys.executable, "-m", "penstock"]
compare = [*penstock, "compare", "--policy", "hpa,ds2,static:12", "--seeds", "1..2", *quick]
subprocess.run([*compare, "--no-regret", "--out", str(results)], check=True, capture_output=True)
simulate = [*penstock, "simulate", "--policy", "ds2", *quick, "--journal", str(journal)]
subprocess.run(simulate, check=True, capture_output=True)

# %% [markdown]
# ## Results: which policy costs least?
# With pandas this is `pandas.read_parquet("results.parquet")` or `pandas.read_csv(...)` and a
# `groupby`; with Spark, `spark.read.parquet(...)`. The standard library will do as well.

# %%
with results.open(newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
costs = defaultdict(list)
for row in rows:
    costs[row["policy"]].append(float(row["cost"]))
print(f"{len(rows)} runs of {', '.join(costs)}")
for policy, values in sorted(costs.items(), key=lambda item: mean(item[1])):
    print(f"  {policy:12} cost {mean(values):6.1f}  ({', '.join(f'{v:.1f}' for v in values)})")

# %% [markdown]
# ## Trade-offs: executor-hours against late records

# %%
for row in sorted(rows, key=lambda row: float(row["executor_hours"])):
    hours, late = float(row["executor_hours"]), float(row["late_fraction"])
    print(f"  {hours:6.1f} h {'#' * round(hours):30} {late:7.2%} late  {row['policy']}")

# %% [markdown]
# ## A journal: when was the fleet moved, and why?
# A step is what was seen, what was decided with its reasons, and what came of it.

# %%
print(read_header(journal).run)
steps = list(read_steps(journal))
moves = [
    step
    for step in steps
    if step.snapshot and step.decision.target_executors != step.snapshot.fleet.target
]
print(f"{len(steps)} turns, {len(moves)} rescales")
for step in moves[:5]:
    assert step.snapshot is not None
    size = f"{step.snapshot.fleet.target} to {step.decision.target_executors}"
    print(f"  minute {step.at_s / 60:5.1f}: {size:8} {step.decision.reasons[0].text}")

# %% [markdown]
# ## A journal as columns, for any plotting library

# %%
seen = [step.snapshot for step in steps if step.snapshot is not None]
columns = {
    "at_s": [snapshot.at_s for snapshot in seen],
    "load_rps": [snapshot.arrival_rps for snapshot in seen],
    "executors": [snapshot.fleet.active for snapshot in seen],
    "delay_s": [snapshot.delay_s for snapshot in seen],
}
delays = [snapshot.delay_s for snapshot in seen if snapshot.delay_s is not None]
print(f"{len(columns)} columns of {len(seen)} turns")
print(f"median age of the oldest waiting record: {median(delays):.1f} s")

# %%
made.cleanup()
