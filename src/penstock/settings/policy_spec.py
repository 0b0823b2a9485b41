"""Policy texts ``name:key=value,...``: one reader, and the writer that it reads back.

The command line, `attach`, `penstock.toml` and the header of a journal all use the same text. Its
keys are parameters of the policy or limits of the guards around it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.controller import Controller
from penstock.core.errors import ConfigError, ModelError, unknown
from penstock.core.files import file_errors
from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.model import Limits, Step
from penstock.core.protocols import Actuator, Journal, Policy, Sensor
from penstock.policies import POLICIES
from penstock.policies.algorithms.profile import NeedsProfile, ProfilingResult
from penstock.settings.goal import Goal
from penstock.settings.notation import Notation, build, describe, keys_of, parse, realize

#: What `core.protocols.Policy` asks for.
_MEMBERS = ("decide", "period_s", "default_limits", "wakes_on_surge")

#: The bounds of the fleet where nobody gives others: the same for every policy, or they would be
#: what is compared.
DEFAULT_BOUNDS = {name: getattr(Limits(), name) for name in ("min_executors", "max_executors")}


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and its limits, ready to be wired."""

    label: str  #: As the user wrote it.
    policy: Policy
    limits: Limits
    given: frozenset[str] = frozenset()  #: What the text itself sets.

    @classmethod
    def of(cls, policy: Policy, limits: Limits | None = None) -> PolicySpec:
        """The spec of a policy object; without limits, those that it ships with."""
        _check_policy(policy)
        return cls(policy_text(policy), policy, policy.default_limits if limits is None else limits)


def read_policy_spec(
    text: str, bounds: Mapping[str, Any] | None = None, goal: Goal | None = None
) -> PolicySpec:
    """Read ``name:key=value,...``; keys are parameters of the policy or of its limits.

    `bounds` are limits for all policies alike, such as the bounds of the fleet; they replace the
    defaults of the policy. A policy that takes the SLO or prices as parameters gets those of
    `goal`. What the text sets itself wins over both.

    >>> entry = read_policy_spec("static:executors=6,cooldown=2min", {"max_executors": 8})
    >>> entry.policy, entry.limits.cooldown_s, entry.limits.max_executors
    (Static(executors=6, period_s=60.0), 120.0, 8)
    >>> sorted(entry.given)
    ['cooldown_s', 'executors']
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
    policy = _with_profile(realize(kind, Notation(notation.name, notation.positional, own)))
    names = list(dict.fromkeys(parameters.values()))
    given = {parameters[key] for key in own} | set(names[: len(notation.positional)])
    if goal is not None:
        policy = with_goal(policy, goal, given)
    read = build(Limits, around, notation.name)
    guarded = {limits[key]: getattr(read, limits[key]) for key in around}
    try:
        around_all = {**(bounds or {}), **(goal.limits if goal else {}), **guarded}
        both = msgspec.structs.replace(kind.default_limits, **around_all)
    except ConfigError as error:
        raise ConfigError(f"{notation.name}: {error}") from None
    return PolicySpec(text, policy, both, frozenset(given | guarded.keys()))


def spec_of(
    policy: str | Policy, bounds: Mapping[str, Any] | None = None, goal: Goal | None = None
) -> PolicySpec:
    """The spec of a policy text, or of a policy object, which keeps its own SLO and prices."""
    if isinstance(policy, str):
        return read_policy_spec(policy, bounds, goal)
    _check_policy(policy)
    around = {**(bounds or {}), **(goal.limits if goal else {})}
    limits = msgspec.structs.replace(policy.default_limits, **around)
    return PolicySpec.of(_with_profile(policy), limits)


def with_goal(policy: Policy, goal: Goal, given: Set[str]) -> Policy:
    """The policy with the SLO and the prices of the goal, where it has a use for them.

    >>> from penstock.policies.penstock.penstock import Penstock
    >>> with_goal(Penstock(), Goal(slo_s=30.0), given=set()).slo_s
    30.0
    """
    shared = {field.name for field in dataclasses.fields(policy)} & set(goal.__struct_fields__)  # type: ignore[arg-type]
    return dataclasses.replace(policy, **{name: getattr(goal, name) for name in shared - given})  # type: ignore[type-var]


def _with_profile(policy: Policy) -> Policy:
    """The policy with what its profile says, if it names a file: policies read none themselves."""
    if not isinstance(policy, NeedsProfile) or not policy.profile:
        return policy
    try:
        with file_errors(f"cannot read profile {policy.profile}"):
            found = ProfilingResult.from_json(Path(policy.profile).read_bytes())
    except ModelError as error:
        raise ConfigError(f"{policy.profile}: {error}") from None
    return policy.with_profile(found.capacity, found.latency, found.downtime_s)


def _check_policy(policy: Any) -> None:
    """Refuse what cannot decide, in one sentence."""
    if isinstance(policy, type):
        name = policy.__name__
        raise ConfigError(f"policy must be a text or an object: pass {name}(), not the class")
    lacking = [name for name in _MEMBERS if not hasattr(policy, name)]
    if lacking:
        raise ConfigError(
            f"policy must be a text such as 'ds2:cooldown=60s' or a policy object, "
            f"and {policy!r} has no {', '.join(lacking)}"
        )
    if not isinstance(policy.default_limits, Limits):
        raise ConfigError(f"default_limits of {policy!r} must be Limits")


def policy_text(policy: Policy) -> str:
    """The text that `read_policy_spec` reads back to the same policy.

    A policy that is not in the table has no such text: it is named by its class.

    >>> from penstock.policies.static import Static
    >>> policy_text(Static(executors=6))
    'static:executors=6'
    """
    kind = type(policy)
    for name, known in POLICIES.items():
        if known is kind:
            return describe(policy, name)
    return kind.__name__


def wire(
    spec: PolicySpec,
    sensor: Sensor,
    actuator: Actuator,
    *,
    journal: Journal | None = None,
    past: Iterable[Step] = (),
) -> Controller:
    """The controller of a job, live, simulated or replayed; put together here only.

    The guards and the policy get the same limits. With the `past` steps of a journal, it continues
    from what those steps say.
    """
    knowledge = Knowledge.from_steps(past, spec.limits)
    return Controller(sensor, spec.policy, Guards(spec.limits), actuator, journal, knowledge)


def rewire(controller: Controller, spec: PolicySpec) -> None:
    """Give a running controller another policy or other limits, from its next turn on."""
    controller.policy = spec.policy
    controller.guards = Guards(spec.limits)
    controller.knowledge.limits = spec.limits
