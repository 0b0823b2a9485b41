"""What the header of a journal says about a run: written from its parts, and read back to them."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.core.errors import ConfigError
from penstock.core.journal import JournalHeader
from penstock.core.model import Limits
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.notation import parse
from penstock.settings.policy_spec import DEFAULT_BOUNDS, PolicySpec, policy_text, read_policy_spec

T = TypeVar("T", Limits, Goal)


def journal_header(spec: PolicySpec, goal: Goal, **facts: str) -> JournalHeader:
    """The header of a run of this policy. `facts` are for people, such as the workload.

    >>> spec = read_policy_spec("static:4", {"max_executors": 8})
    >>> header = journal_header(spec, Goal(slo_s=20.0), workload="sine")
    >>> header.run, header.policy
    ({'policy': 'static:4', 'workload': 'sine'}, 'static:executors=4')
    >>> header.limits["max_executors"], header.goal["slo_s"]
    (8, 20.0)
    """
    plain = msgspec.json.decode(msgspec.json.encode(goal))  # as it is read back
    return JournalHeader.of(
        {"policy": spec.label, **facts},
        policy=policy_text(spec.policy),
        limits=spec.limits,
        goal={k: v for k, v in plain.items() if v not in ("", None, [])},
    )


def recorded_spec(header: JournalHeader) -> PolicySpec:
    """The policy that wrote a journal, inside its limits.

    A journal of Penstock 0.1 names no limits: they are those that the policy ships with, inside
    the bounds that every command has by default.
    """
    text = header.policy or header.run.get("policy", "")
    if not text:
        raise ConfigError("the journal does not say which policy wrote it: name one")
    if (name := parse(text).name) not in POLICIES:
        raise ConfigError(
            f"the journal was written by the policy class {name}, which is not in the table of "
            "policies and cannot be rebuilt by name: name another policy"
        )
    spec = read_policy_spec(text, DEFAULT_BOUNDS)
    label = header.run.get("policy", text)
    return PolicySpec(label, spec.policy, recorded_limits(header) or spec.limits, spec.given)


def recorded_limits(header: JournalHeader) -> Limits | None:
    """The limits of the run; ``None`` if the journal does not say."""
    return _read(header.limits, Limits) if header.limits else None


def recorded_goal(header: JournalHeader) -> Goal | None:
    """The goal of the run; ``None`` if the journal does not say."""
    return _read(header.goal, Goal) if header.goal else None


def _read(fields: Mapping[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"the header of the journal is not readable: {error}") from None
