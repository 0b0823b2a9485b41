"""Random policies of the table, with random parameters within reason, and random limits."""

from __future__ import annotations

import dataclasses
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import assume
from hypothesis import strategies as st
from msgspec import Meta

from penstock.core.errors import ConfigError
from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.policies import POLICIES
from penstock.policies.kubernetes.pacing import Behavior, ScalingPolicy, ScalingRules

#: Not varied: a library that may not be there, and a period for which a run takes too long.
FIXED = {"auto_arima"}


def _numbers(meta: Meta | None, default: Any, whole: bool) -> st.SearchStrategy[Any]:
    """About the default, inside the bounds that the parameter declares."""
    middle = 1.0 if default in (None, 0) else float(default)
    low, high = middle / 3.0, middle * 3.0
    if meta is not None:
        low = max([low, *(float(b) for b in (meta.ge, meta.gt) if b is not None)])
        high = min([high, *(float(b) for b in (meta.le, meta.lt) if b is not None)])
    if whole:
        return st.integers(int(low) + (int(low) < low), max(int(high), int(low) + 1))
    above = meta is not None and meta.gt is not None and low == meta.gt
    return st.floats(low, high, exclude_min=above, exclude_max=bool(meta and meta.lt is not None))


def _rules() -> st.SearchStrategy[ScalingRules]:
    one = st.builds(
        ScalingPolicy,
        st.sampled_from(["Pods", "Percent"]),
        st.integers(1, 50),
        st.floats(1.0, 600.0),
    )
    return st.builds(
        ScalingRules,
        st.none() | st.floats(0.0, 600.0),
        st.none() | st.sampled_from(["Max", "Min"]),
        st.none() | st.lists(one, min_size=1, max_size=2).map(tuple),
        st.none() | st.floats(0.0, 0.5),
    )


def _values(hint: Any, default: Any, meta: Meta | None = None) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _values(arguments[0], default, arguments[1])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.just(default)  # sizes that fit the other parameters
    if NoneType in arguments:
        some = next(each for each in arguments if each is not NoneType)
        return st.none() | _values(some, default, meta)
    if hint is bool:
        return st.booleans()
    if hint is Behavior:
        return st.builds(Behavior, _rules(), _rules())
    return _numbers(meta, default, whole=hint is int)


@st.composite
def random_policies(draw: st.DrawFn, names: tuple[str, ...] = tuple(POLICIES)) -> Policy:
    """A policy of the table; about half of its parameters differ from their defaults."""
    kind: Any = POLICIES[draw(st.sampled_from(names))]
    hints = get_type_hints(kind, include_extras=True)
    changed = {
        field.name: draw(_values(hints[field.name], field.default))
        for field in dataclasses.fields(kind)
        if field.name not in FIXED and draw(st.booleans())
    }
    try:
        policy: Policy = kind(**changed)
    except ConfigError:
        assume(False)
    return policy


@st.composite
def random_limits(draw: st.DrawFn) -> Limits:
    least = draw(st.integers(1, 4))
    return Limits(
        min_executors=least,
        max_executors=draw(st.integers(least, 40)),
        cooldown_s=draw(st.sampled_from([0.0, 30.0, 240.0])),
        stabilize_up_s=draw(st.sampled_from([0.0, 20.0])),
        stabilize_down_s=draw(st.sampled_from([0.0, 45.5, 300.0])),
        max_step=draw(st.sampled_from([None, 1, 3])),
        dead_band_fraction=draw(st.sampled_from([0.0, 0.2])),
        max_age_s=draw(st.sampled_from([25.0, 120.0])),
    )
