"""``penstock replay``: what a policy would have decided on a recorded journal."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.views.output import console, print_json
from penstock.core.journal import JournalHeader, read_header, read_last_run
from penstock.core.model import Limits
from penstock.lab.replay import Difference, differences
from penstock.lab.replay import replay as replayed_steps
from penstock.observe.formatting import instant, rate, reasons
from penstock.settings.goal import Goal
from penstock.settings.header import recorded_goal, recorded_limits, recorded_spec
from penstock.settings.notation import quantity
from penstock.settings.policy_spec import PolicySpec, read_policy_spec, with_goal


def replay(
    journal: Path,
    /,
    *,
    policy: str | None = None,
    min: int | None = None,  # noqa: A002
    max: int | None = None,  # noqa: A002
    slo: str | None = None,
    json: Annotated[bool, Parameter(help="The differences as JSON.")] = False,
) -> int:
    """Show what another policy would have decided on a journal. Exits with 1 if it differs.

    A replay is open loop: the recorded job does not react to other decisions. To see what would
    have become of it, simulate. Bounds and SLO are those of the journal, unless given here. Of a
    journal that was continued with another policy or other limits, the last part is replayed.

    Parameters
    ----------
    journal
        A journal written by simulate or by a live run.
    policy
        The policy to ask; without it the recorded one, which decides the same again.
    min
        Fewest executors.
    max
        Most executors.
    slo
        A record that waits longer is late.
    """
    header = read_header(journal)
    spec = _spec(header, policy, {"min_executors": min, "max_executors": max}, slo)
    past, recorded = read_last_run(journal)
    found = differences(recorded, replayed_steps(recorded, spec, past))
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
        _print_differences(found, len(recorded), spec.label)
    return 1 if found else 0


def _spec(
    header: JournalHeader, policy: str | None, bounds: dict[str, int | None], slo: str | None
) -> PolicySpec:
    """What was recorded, with what the command line gives in its place."""
    given = {name: value for name, value in bounds.items() if value is not None}
    goal = recorded_goal(header) or Goal()
    if slo is not None:
        goal = msgspec.structs.replace(goal, slo_s=quantity(slo, "--slo"))
    if policy is not None:
        limits = recorded_limits(header) or Limits()
        fleet = {name: getattr(limits, name) for name in bounds}
        return read_policy_spec(policy, {**fleet, **given}, goal)
    spec = recorded_spec(header)
    limits = msgspec.structs.replace(spec.limits, **given)
    if slo is None:
        return dataclasses.replace(spec, limits=limits)
    others = set(goal.__struct_fields__) - {"slo_s"}
    return dataclasses.replace(
        spec, policy=with_goal(spec.policy, goal, given=others), limits=limits
    )


def _print_differences(found: list[Difference], total: int, label: str) -> None:
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
