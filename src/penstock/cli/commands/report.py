"""``penstock report``: one page to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.views.output import console, print_json
from penstock.core.errors import ConfigError
from penstock.core.journal import read_header, read_rotated
from penstock.core.model import Step
from penstock.observe.report import page, summary, write
from penstock.settings.notation import quantity


def report(
    *journals: Path,
    out: Path = Path("report.html"),
    title: str | None = None,
    slo: str = "10s",
    json: Annotated[bool, Parameter(help="The figures of the page as JSON, besides.")] = False,
) -> int:
    """Make one page, to open in any browser, of one journal or of several side by side.

    Parameters
    ----------
    journals
        Journals written by simulate or by live runs.
    out
        Where the page goes; an older page there is replaced.
    title
        What stands above the page.
    slo
        A record that waits longer is late.
    """
    slo_s = quantity(slo, "--slo")
    if not slo_s > 0.0:
        raise ConfigError(f"--slo must be positive, not '{slo}'")
    if not journals:
        raise ConfigError("name at least one journal to report on")
    if out.resolve() in {path.resolve() for path in journals}:
        raise ConfigError(f"--out {out} is one of the journals: name another place")
    named = list(zip(names(journals), map(_steps, journals), strict=True))
    html = page(named, title=title or _title(journals), slo_s=slo_s)
    write(out, html)
    if json:
        print_json({"page": str(out), "slo_s": slo_s, "journals": summary(named, slo_s)})
    else:
        console().print(f"{out}  ({len(html.encode()) / 1e3:.0f} kB)", markup=False)
    return 0


def names(journals: Sequence[Path]) -> list[str]:
    """A short name for each journal: its policy, its file too where that alone is not enough."""
    policies = [read_header(path).run.get("policy", path.stem) for path in journals]
    often = Counter(policies)
    told = [
        policy if often[policy] == 1 else f"{policy} ({path.stem})"
        for policy, path in zip(policies, journals, strict=True)
    ]
    often = Counter(told)
    return [
        name if often[name] == 1 else str(path) for name, path in zip(told, journals, strict=True)
    ]


def _title(journals: Sequence[Path]) -> str:
    """What was run, as far as all journals agree on it."""
    runs = [read_header(path).run for path in journals]
    policies = [run.get("policy", path.stem) for run, path in zip(runs, journals, strict=True)]
    shared = [
        values.pop()
        for key in ("workload", "engine")
        if len(values := {run.get(key, "") for run in runs}) == 1
    ]
    return " · ".join([", ".join(dict.fromkeys(policies)), *filter(None, shared)])


def _steps(path: Path) -> list[Step]:
    steps = list(read_rotated(path))
    if not steps:
        raise ConfigError(f"journal {path} holds no step")
    return steps
