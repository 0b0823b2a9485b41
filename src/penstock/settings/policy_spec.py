"""A policy with its parameters and limits, as written on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.core.errors import unknown
from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.notation import Notation, build, keys_of, parse, realize


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy under a label, ready to be run."""

    label: str
    policy: Policy
    limits: Limits


def read_policy_spec(
    text: str, bounds: Mapping[str, Any] | None = None, goal: Goal | None = None
) -> PolicySpec:
    """Read ``name:key=value,...``; keys are parameters of the policy or of its limits.

    `bounds` are limits that hold for all contenders alike, such as the bounds of the fleet. A
    policy that takes the SLO or prices as parameters is given those of the `goal`, unless the
    text says otherwise.

    >>> entry = read_policy_spec("static:executors=6,cooldown=2min", {"max_executors": 8})
    >>> entry.policy, entry.limits.cooldown_s, entry.limits.max_executors
    (Static(executors=6, period_s=60.0), 120.0, 8)
    """
    notation = parse(text)
    kind = POLICIES.get(notation.name)
    if kind is None:
        raise unknown("policy", notation.name, POLICIES)
    own, around = {}, {}
    parameters, limits = keys_of(kind), keys_of(Limits)
    for key, value in notation.options.items():
        if key in parameters:
            own[key] = value
        elif key in limits:
            around[key] = value
        else:
            raise unknown("option", key, parameters.keys() | limits.keys(), notation.name)
    policy = realize(kind, Notation(notation.name, notation.positional, own))
    if goal is not None:
        policy = with_goal(policy, goal, given={parameters[key] for key in own})
    read = build(Limits, around, notation.name)
    given = {limits[key]: getattr(read, limits[key]) for key in around}
    both = msgspec.structs.replace(kind.default_limits, **{**(bounds or {}), **given})
    return PolicySpec(text, policy, both)


def with_goal(policy: Policy, goal: Goal, given: Set[str]) -> Policy:
    """The policy with the SLO and the prices of the goal, where it has a use for them.

    >>> from penstock.policies.penstock.penstock import Penstock
    >>> with_goal(Penstock(), Goal(slo_s=30.0), given=set()).slo_s
    30.0
    """
    shared = {field.name for field in dataclasses.fields(policy)} & set(goal.__struct_fields__)  # type: ignore[arg-type]
    return dataclasses.replace(policy, **{name: getattr(goal, name) for name in shared - given})  # type: ignore[type-var]
