"""Writes the generated parts of the docs; ``--check`` only says whether they are current."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.simulation.faults import FAULTS
from penstock.simulation.workloads.expressions import NAMED
from penstock.simulation.workloads.workload import WORKLOADS
from penstock.testbed.jobs.benchmark_jobs import JOBS, NOT_EXPRESSIBLE
from penstock.testbed.jobs.job import BenchmarkJob

HERE = Path(__file__).parent
ROOT = HERE.parent

#: A longer list of modules beside each other is only counted in the figure of the layers.
MOST_NAMES = 8
LAYERS_BEGIN = "<!-- layers: generated from pyproject.toml by `make docs` -->\n"
LAYERS_END = "<!-- layers: end -->\n"

POLICIES_HEAD = """\
# Policies

Generated from the docstrings by `make docs`. Every policy is a pure function of what was seen and
what is known; bounds, cooldowns and stabilisation are guards around it, with the values of its
paper as defaults. `penstock policies NAME` prints the same text. The default is `{default}`.

| policy | the rule in a line |
|---|---|
"""

JOBS_HEAD = """\
# Benchmark jobs

Generated from the table of jobs by `make docs`; `penstock jobs` prints it. Each job is a PySpark
pipeline from DataFrame to DataFrame with a generator of its events, and its answer is checked
against plain Python (q12 and q3-thesis as a batch, the others as a stream). `penstock demo --job
NAME` runs it on a real cluster.

*Paced* records compute little: in the demo each waits instead, so that one machine can stand for
a cluster. *Computing* records keep a core of an executor busy for milliseconds, and wait several
times as long. These jobs need `pip install "penstock[jobs]"`.

Records that are malformed are left out and counted: a query has the count of each batch in its
progress, `observedMetrics[NAME]["malformed"]`.

| job | streams | records | state | what it computes |
|---|---|---|---|---|
"""


def jobs() -> str:
    """docs/jobs.md: the table of jobs, a section for each, and the queries that are none."""
    rows = [
        f"| [`{job.name}`](#{job.name}) | {', '.join(job.streams)} | "
        f"{'computing' if job.compute_s else 'paced'} | {job.state} | {job.summary} |"
        for job in JOBS.values()
    ]
    missing = [f"- `{query}`: {reason}." for query, reason in NOT_EXPRESSIBLE.items()]
    return "\n".join(
        [
            JOBS_HEAD + "\n".join(rows),
            "",
            "Nexmark queries that Structured Streaming cannot express with DataFrame operations:",
            "",
            *missing,
            "",
            *map(_job_section, JOBS.values()),
        ]
    )


def _job_section(job: BenchmarkJob) -> str:
    module = job.pipeline.__module__
    path = f"src/{module.replace('.', '/')}.py"
    doc = re.split(r"\n\w+\n-{3,}\n", inspect.getdoc(job.pipeline) or "")[0].strip()
    facts = [
        f"Origin: {job.origin}. Output mode: {job.output_mode}. In the demo: "
        f"{job.demo.low_rps:g} to {job.demo.peak_rps:g} records/s, each waits "
        f"{1e3 * job.demo.pace_s:g} ms"
        + (f" and computes for about {1e3 * job.compute_s:g} ms." if job.compute_s else "."),
        f"Code, and where it differs from its origin: [`{Path(path).name}`](../{path}).",
    ]
    if job.settings:
        settings = "\n".join(f"- `{key}={value}`" for key, value in job.settings.items())
        facts.append(f"Settings of Spark:\n\n{settings}")
    parts = [f"## {job.name}", f"```\n{job.dataflow}\n```", doc, *facts]
    return "\n\n".join(parts) + "\n"


def policies() -> str:
    """docs/policies.md: the docstring of each policy as a section."""
    rows = [f"| [`{name}`](#{name}) | {_summary(kind)} |" for name, kind in POLICIES.items()]
    sections = [_section(name, kind) for name, kind in POLICIES.items()]
    head = POLICIES_HEAD.format(default=DEFAULT_POLICY)
    return head + "\n".join(rows) + "\n\n" + "\n".join(sections)


def workloads() -> str:
    """docs/workloads.md: every shape, named load and fault, with its options and defaults."""
    lines = [
        "# Workloads and faults",
        "",
        "Generated from the docstrings by `make docs`; `penstock workloads` prints them. A "
        "workload is `name:key=value,...`;",
        "numbers take `k M G %` and `ms s m min h d`; `a + b`, `a * b` and `a for 2h then b` "
        "combine them.",
        "",
        "| workload | what it is | options and defaults |",
        "|---|---|---|",
        *(_row(name, kind) for name, kind in WORKLOADS.items()),
        "",
        "A `trace` is scaled so that its peak needs 12 executors, unless `scale`, `max_rps` or "
        "`peak_executors` is given:",
        "`scale=1` keeps the recorded rates. Gaps between its rows are filled with straight lines. "
        "`simulate` and `compare` say both.",
        "",
        "| name | stands for |",
        "|---|---|",
        *(f"| `{name}` | `{_cell(text)}` |" for name, text in NAMED.items()),
        "",
        "Faults are given with `--fault`, in the same notation:",
        "",
        "| fault | what happens | options and defaults |",
        "|---|---|---|",
        *(_row(name, kind) for name, kind in FAULTS.items()),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """The text as it is written inside a table, where a bar would end the cell."""
    return text.replace("|", r"\|")


def _summary(kind: type[Any]) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _row(name: str, kind: type[Any]) -> str:
    options = ", ".join(_option(field) for field in msgspec.structs.fields(kind))
    return f"| `{name}` | {_summary(kind)} | {options} |"


def _option(field: msgspec.structs.FieldInfo) -> str:
    return f"`{field.name}`" if field.required else f"`{field.name}={field.default}`"


def _section(name: str, kind: type[Any]) -> str:
    doc = inspect.getdoc(kind) or ""
    doc = re.sub(r"^(\S[^\n]*)\n-{3,}$", r"### \1", doc, flags=re.MULTILINE)
    doc = _parameters(doc, kind)
    doc = re.sub(r"((?:^>>>.*\n(?:(?!\n|###).*\n?)*\n?)+)", _fence, doc, flags=re.MULTILINE)
    limits = msgspec.json.decode(msgspec.json.encode(kind.default_limits))
    around = ", ".join(f"`{key} = {value:g}`" for key, value in limits.items()) or "none of its own"
    return f"## {name}\n\n{doc.strip()}\n\nLimits: {around}.\n"


def _fence(match: re.Match[str]) -> str:
    return "```python\n" + match[1].rstrip() + "\n```\n\n"


def _parameters(doc: str, kind: type[Any]) -> str:
    """The Parameters section as a list, with the defaults that the code really has."""
    found = re.search(r"### Parameters\n(.*?)(?=\n### |\Z)", doc, re.DOTALL)
    if found is None:
        return doc
    defaults = {field.name: getattr(kind(), field.name) for field in dataclasses.fields(kind)}
    lines: list[str] = []
    for line in found[1].splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(",")]
            shown = ", ".join(f"`{name} = {defaults.get(name)!r}`" for name in names)
            lines.append(f"- {shown}:")
        elif line.strip():
            lines[-1] += f" {line.strip()}"
    return doc[: found.start(1)] + "\n" + "\n".join(lines) + "\n" + doc[found.end(1) :]


def architecture() -> str:
    """docs/architecture.md with the figure of the layers between its two markers."""
    page = (HERE / "architecture.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(LAYERS_BEGIN)
    _, end, after = rest.partition(LAYERS_END)
    if not (begin and end):
        raise SystemExit(f"docs/architecture.md needs the lines {LAYERS_BEGIN}and {LAYERS_END}")
    return f"{before}{begin}{layers((ROOT / 'pyproject.toml').read_text('utf-8'))}{end}{after}"


def layers(pyproject: str) -> str:
    """The figure of the packages and of what is inside them, from the import contracts."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    inside = {
        package: contract["layers"]
        for contract in contracts
        for package in contract.get("containers", ())
    }
    (packages,) = [c["layers"] for c in contracts if "layers" in c and "containers" not in c]
    lines = []
    for package in packages:
        order = " > ".join(_layer(modules) for modules in inside.get(package, ()))
        lines.append(f"{package.rpartition('.')[2]:12}{order}".rstrip())
    return "\n".join(["```text", *lines, "```"]) + "\n"


def _layer(modules: str) -> str:
    names = modules.split(" | ")
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} modules"


PAGES = {
    "policies.md": policies,
    "workloads.md": workloads,
    "jobs.md": jobs,
    "architecture.md": architecture,
}


def main() -> int:
    stale = []
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
                print(f"wrote docs/{name}")
    if stale and "--check" in sys.argv:
        print(f"docs/{', docs/'.join(stale)} are not current: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
