"""``penstock report``: journals as one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from penstock.cli.options import Slo, about, amount
from penstock.cli.output import console, file_size, note, print_json, read_journal_steps
from penstock.core.errors import ConfigError
from penstock.core.files import check_place, write_whole
from penstock.core.journal import read_header
from penstock.observe.report.page import page, summary
from penstock.settings.goal import Goal
from penstock.settings.header import recorded_goal


def report(
    *journals: Annotated[Path, about("report.journals")],
    out: Annotated[Path, about("report.out")] = Path("report.html"),
    title: Annotated[str | None, about("report.title")] = None,
    slo: Annotated[Slo, about("report.slo")] = None,
    price: Annotated[float | None, amount(unit="PRICE"), about("report.price")] = None,
    json: Annotated[bool, about("report.json")] = False,
) -> int:
    """Make one page, to open in any browser, of one journal or of several side by side."""
    if not journals:
        raise ConfigError("report needs at least one journal")
    if out.resolve() in {path.resolve() for path in journals}:
        raise ConfigError(f"--out {out} is one of the journals: name another file")
    check_place(out)
    named = list(zip(names(journals), map(read_journal_steps, journals), strict=True))
    slo_s = slo or _recorded_slo_s(journals)
    goal = next(filter(None, (recorded_goal(read_header(path)) for path in journals)), Goal())
    if price is not None:
        goal = replace(goal, price=price, core_price=None, gb_price=None)
    html = page(named, title=title or _title(journals), slo_s=slo_s, goal=goal)
    write_whole(out, [html.encode()])
    if json:
        print_json({"page": str(out), "slo_s": slo_s, "journals": summary(named, slo_s, goal)})
    else:
        console().print(file_size(out))
    return 0


def names(journals: Sequence[Path]) -> list[str]:
    """A short name for each journal: its policy, its file too where that alone is not enough."""
    policies = [read_header(path).run.get("policy", path.stem) for path in journals]
    named = [
        policy if policies.count(policy) == 1 else f"{policy} ({path.stem})"
        for policy, path in zip(policies, journals, strict=True)
    ]
    pairs = zip(named, journals, strict=True)
    return [name if named.count(name) == 1 else str(path) for name, path in pairs]


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


def _recorded_slo_s(journals: Sequence[Path]) -> float:
    """The SLO that the journals were written for; the default where none says so."""
    goals = filter(None, (recorded_goal(read_header(path)) for path in journals))
    recorded = list(dict.fromkeys(goal.slo_s for goal in goals))
    if len(recorded) > 1:
        texts = ", ".join(f"{slo_s:g} s" for slo_s in recorded)
        note(f"the journals have different SLOs ({texts}): the first is used; --slo sets another")
    return recorded[0] if recorded else Goal().slo_s
