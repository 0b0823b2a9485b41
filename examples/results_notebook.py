# %% [markdown]
# # Read results and a journal in a notebook of your own
#
# `penstock.compare` gives one row per run and `penstock.simulate` one step per turn of the loop.
# The command line writes the same to files: `penstock compare --out results.parquet` (or `.csv`)
# and `penstock simulate --journal run.jsonl`. This script needs Penstock and nothing else. In
# Jupyter or an editor that knows `# %%`, run it cell by cell.

# %%
from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

import penstock

# %% [markdown]
# ## Results: which policy costs least?
# A file instead: `pandas.read_parquet("results.parquet")`, `pandas.read_csv(...)`, or
# `spark.read.parquet(...)`; its columns have the same names.

# %%
load = "sine:mean=40k,amplitude=25k,period=2h"
rows = penstock.compare(
    ["hpa", "ds2", "static:12"], [load], seeds=[1, 2], duration_s=7200.0, regret=False
)
costs = defaultdict(list)
for row in rows:
    costs[row.policy].append(row.cost)
print(f"{len(rows)} runs of {', '.join(costs)}")
for policy, values in sorted(costs.items(), key=lambda item: mean(item[1])):
    print(f"  {policy:12} cost {mean(values):6.1f}  ({', '.join(f'{v:.1f}' for v in values)})")

# %% [markdown]
# ## Trade-offs: executor-hours against late records

# %%
for row in sorted(rows, key=lambda row: row.executor_hours):
    bar = "#" * round(row.executor_hours)
    print(f"  {row.executor_hours:6.1f} h {bar:30} {row.late_fraction:7.2%} late  {row.policy}")

# %% [markdown]
# ## A journal: when was the fleet moved, and why?
# A step is what was measured, what was decided with its reasons, and what the actuator answered.
# With a journal of your own, read that file instead.

# %%
with tempfile.TemporaryDirectory(prefix="penstock-notebook-") as folder:
    path = Path(folder, "run.jsonl")
    penstock.simulate("ds2", load, duration_s=7200.0, journal=path)
    journal = penstock.read_journal(path)

print(journal.header.run)
print(f"{len(journal.steps)} turns, {len(journal.rescales)} rescales")
for step in journal.rescales[:5]:
    assert step.snapshot is not None
    size = f"{step.snapshot.fleet.target} to {step.decision.target_executors}"
    print(f"  minute {step.at_s / 60:5.1f}: {size:8} {step.decision.reasons[0].text}")

# %% [markdown]
# ## A journal as columns, for any plotting library

# %%
columns = journal.columns()
delays = [delay for delay in columns["delay_s"] if delay is not None]
print(f"{len(columns)} columns of {len(columns['at_s'])} turns: {', '.join(columns)}")
print(f"median age of the oldest waiting record: {median(delays):.1f} s")
