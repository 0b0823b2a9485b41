"""Writes docs/tuned.json: for each rival the setting that `penstock tune` finds for it.

    python -m docs.tune [TRACE.csv ...] [--policy NAME ...] [--family smooth hard] [--engine ...]

One search per policy, engine and kind of load, on three seeds; the best has to beat the defaults on
a fourth. What the file has already is not searched again, so an interrupted run goes on where it
stopped; `--again` searches all of it, as after a change of a rule. All searches take about two
hours of one core. Recorded loads are given as files, all in one folder; without any there is no
search on recorded days.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from docs.rivals import (
    BOUNDS,
    ENGINES,
    FAMILIES,
    HARD,
    SEARCHED,
    SMOOTH,
    TUNED,
    Found,
    TunedSettings,
    published,
    read_tuned,
    tunable,
)

from penstock.core.files import write_whole

#: Three seeds to tune on, and one that is held back.
SEEDS = "1..4"


def command(
    policy: str, family: str, engine: str, loads: Sequence[str], hours: float, candidates: int
) -> list[str]:
    """The search as one would type it, without what does not change what is found."""
    # The length of a recorded load is in its name.
    length = [] if family == "recorded" else ["--duration", f"{hours:g}h"]
    also = [setting for setting in published(policy) if setting != policy]
    return [
        "penstock", "tune", policy, "--parameter", *SEARCHED[policy],
        *(["--also", *also] if also else []), "--workload", *loads, "--engine", engine,
        "--seeds", SEEDS, *length, "--candidates", str(candidates),
        "--min", str(BOUNDS["min_executors"]), "--max", str(BOUNDS["max_executors"]),
    ]  # fmt: skip


def search(typed: Sequence[str], folder: Path, processes: int) -> tuple[str | None, float]:
    """Run a search in `folder`; the setting and its cost ratio, ``None`` for the defaults."""
    with TemporaryDirectory() as scratch:
        out = ["--out", str(Path(scratch) / "penstock.toml"), "--json"]
        ended = subprocess.run(
            [sys.executable, "-m", *typed, *out, "--processes", str(processes)],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if ended.returncode not in (0, 1):
        raise SystemExit(f"{shlex.join(typed)}\n{ended.stderr}")
    facts = json.loads(ended.stdout)
    if not facts["better"]:
        return None, 1.0
    best = facts["validated"][0]
    return best["policy"], round(best["cost_ratio"], 4)


def loads_of(family: str, traces: Sequence[Path], hours: float) -> list[str]:
    if family == "recorded":
        return [f"trace:{trace.name},hours={3 * hours:g}" for trace in traces]
    return list(SMOOTH if family == "smooth" else HARD)


def searches(given: argparse.Namespace) -> Iterator[tuple[str, str, str, list[str]]]:
    """Each kind of load, engine and policy with its command; nothing without loads."""
    for family, engine, policy in product(given.family, given.engine, given.policy):
        if loads := loads_of(family, given.traces, given.hours):
            typed = command(policy, family, engine, loads, given.hours, given.candidates)
            yield family, engine, policy, typed


def main(arguments: Sequence[str] | None = None, file: Path = TUNED) -> None:
    options = argparse.ArgumentParser(description="Write docs/tuned.json.")
    options.add_argument("traces", nargs="*", type=Path)
    options.add_argument("--policy", nargs="+", default=tunable(), choices=tunable())
    options.add_argument("--family", nargs="+", default=FAMILIES, choices=FAMILIES)
    options.add_argument("--engine", nargs="+", default=ENGINES, choices=ENGINES)
    options.add_argument("--hours", type=float, default=2.0)
    options.add_argument("--candidates", type=int, default=18)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--again", action="store_true", help="also what the file has already")
    given = options.parse_args(arguments)
    folders = {trace.resolve().parent for trace in given.traces}
    if len(folders) > 1:
        options.error("all recorded loads must be in one folder")
    for trace in given.traces:
        if not trace.is_file():
            options.error(f"{trace} is not there")
    folder = next(iter(folders), Path.cwd())
    for family, engine, policy, typed in searches(given):
        text = shlex.join(typed)
        # Read each time: another search may run beside this one.
        kept = {(one.family, one.engine, one.policy): one for one in read_tuned(file).found}
        old = kept.get((family, engine, policy))
        if old is not None and old.command == text and not given.again:
            continue
        setting, ratio = search(typed, folder, given.processes)
        kept[family, engine, policy] = Found(family, engine, policy, setting or policy, ratio, text)
        ordered = tuple(kept[key] for key in sorted(kept))
        made = TunedSettings("make tuned (docs/tune.py); command is what was searched", ordered)
        write_whole(file, [msgspec.json.format(msgspec.json.encode(made), indent=1), b"\n"])
        sys.stderr.write(f"{family}, {engine}: {setting or policy} ({ratio:g} of the defaults)\n")


if __name__ == "__main__":
    main()
