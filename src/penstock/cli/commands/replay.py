"""``penstock replay``: what a policy would have decided on a recorded journal."""

import dataclasses
from pathlib import Path
from typing import Annotated

import msgspec

from penstock.cli.options import Slo, about, whole
from penstock.cli.output import console, print_json
from penstock.core.journal import JournalHeader, read_header, read_last_run
from penstock.core.model import Limits
from penstock.lab.replay import Difference, differences
from penstock.lab.replay import replay as replayed_steps
from penstock.observe.formatting import instant, rate, reasons
from penstock.settings.goal import Goal
from penstock.settings.header import recorded_goal, recorded_limits, recorded_spec
from penstock.settings.policy_spec import PolicySpec, read_policy_spec, with_goal


def replay(
    journal: Annotated[Path, about("journal")],
    /,
    *,
    policy: Annotated[str | None, about("replay.policy")] = None,
    min: Annotated[int | None, whole(), about("replay.min")] = None,  # noqa: A002
    max: Annotated[int | None, whole(1), about("replay.max")] = None,  # noqa: A002
    slo: Annotated[Slo, about("replay.slo")] = None,
    json: Annotated[bool, about("replay.json")] = False,
) -> int:
    """Show what another policy would have decided on a journal. Exits with 1 if it differs.

    A replay is open loop: the recorded job does not react to other decisions. To see what would
    have become of it, simulate. Of a journal that was continued with another policy or other
    limits, the last part is replayed.
    """
    header = read_header(journal)
    spec = _spec(header, policy, {"min_executors": min, "max_executors": max}, slo)
    past, recorded = read_last_run(journal)
    found = differences(recorded, replayed_steps(recorded, spec, past))
    if json:
        decisions = [(each.at_s, each.recorded.decision, each.replayed.decision) for each in found]
        names = "at_s", "recorded", "replayed"
        print_json([dict(zip(names, each, strict=True)) for each in decisions])
    else:
        _print_differences(found, len(recorded), spec.label)
    return 1 if found else 0


def _spec(
    header: JournalHeader, policy: str | None, bounds: dict[str, int | None], slo: float | None
) -> PolicySpec:
    """What was recorded, with what the command line gives in its place."""
    given = {name: value for name, value in bounds.items() if value is not None}
    goal = recorded_goal(header) or Goal()
    if slo is not None:
        goal = msgspec.structs.replace(goal, slo_s=slo)
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
            soft_wrap=True,
        )
    screen.print(
        f"{label} differs at {len(found)} of {total} turns (open loop: the job does not react)",
        style="dim",
    )
