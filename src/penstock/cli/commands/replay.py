"""``penstock replay``: what another policy would have decided."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.commands.options import FleetOptions, bounds_of
from penstock.cli.views.output import console, print_json
from penstock.core.guards import chain
from penstock.core.journal import read_header, read_rotated
from penstock.lab.replay import Difference, differences
from penstock.lab.replay import replay as replayed_steps
from penstock.observe.formatting import instant, rate, reasons
from penstock.settings.policy_spec import read_policy_spec


def replay(
    journal: Path,
    /,
    *,
    policy: str | None = None,
    min: int | None = None,  # noqa: A002
    max: int | None = None,  # noqa: A002
    json: Annotated[bool, Parameter(help="The differences as JSON.")] = False,
) -> int:
    """Show what another policy would have decided on a journal. Exits with 1 if it differs.

    A replay is open loop: the recorded job does not react to other decisions. To see what would
    have become of it, simulate.

    Parameters
    ----------
    journal
        A journal written by simulate or by a live run.
    policy
        The policy to ask; without it the recorded one, which must decide the same again.
    min
        Fewest executors.
    max
        Most executors.
    """
    header = read_header(journal)
    recorded = list(read_rotated(journal))
    entry = read_policy_spec(
        policy or header.run.get("policy", "static"),
        bounds_of(FleetOptions(min=min, max=max).settings()),
    )
    replayed = replayed_steps(recorded, entry.policy, chain(entry.limits))
    found = differences(recorded, replayed)
    if json:
        print_json(
            [
                {
                    "at_s": each.at_s,
                    "recorded": each.recorded.decision,
                    "replayed": each.replayed.decision,
                }
                for each in found
            ]
        )
    else:
        _tell(found, len(recorded), entry.label)
    return 1 if found else 0


def _tell(found: list[Difference], total: int, label: str) -> None:
    screen = console()
    for each in found:
        old, new = each.recorded.decision, each.replayed.decision
        load = rate(each.recorded.snapshot.arrival_rps) if each.recorded.snapshot else "-"
        screen.print(
            f"{instant(each.at_s)}  load {load:>10}  recorded {old.target_executors:>2}, "
            f"{label} {new.target_executors:>2}: {reasons(new)}",
            markup=False,
            soft_wrap=True,
        )
    screen.print(
        f"{label} differs at {len(found)} of {total} turns (open loop: the job does not react)",
        style="dim",
    )
