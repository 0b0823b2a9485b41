"""How fast an autoscaler may scale: ``spec.behavior``, its defaults, and the limit without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil
from typing import Literal

from msgspec import Struct

from penstock.core.errors import ModelError
from penstock.policies.kubernetes.numbers import MAX_INT32, MIN_INT32

#: The longest period of a policy and the longest window that Kubernetes accepts.
MAX_PERIOD_S = 1800.0
MAX_WINDOW_S = 3600.0

Select = Literal["Max", "Min", "Disabled"]


class ScalingPolicy(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How many pods, or percent of them, may change in one period.

    Parameters
    ----------
    kind
        ``Pods`` or ``Percent``.
    value
        How many.
    period_s
        In which time.
    """

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float = 15.0

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ModelError(f"value must not be negative, not {self.value}")
        if not 0.0 < self.period_s <= MAX_PERIOD_S:
            raise ModelError(f"period_s must be in 0..{MAX_PERIOD_S:.0f}, not {self.period_s}")


class ScalingRules(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The rules of one direction; what is ``None`` takes the default of that direction.

    Parameters
    ----------
    window_s
        Stabilisation window; by default 0 s up and 300 s down.
    select
        ``Max`` takes the policy that allows most, ``Min`` the one that allows least,
        ``Disabled`` forbids the direction.
    policies
        By default 4 pods or 100 % in 15 s up, and 100 % in 15 s down.
    tolerance
        Instead of the tolerance of the whole cluster.
    """

    window_s: float | None = None
    select: Select | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.window_s is not None and not 0.0 <= self.window_s <= MAX_WINDOW_S:
            raise ModelError(f"window_s must be in 0..{MAX_WINDOW_S:.0f}, not {self.window_s}")
        if self.tolerance is not None and not self.tolerance >= 0.0:
            raise ModelError(f"tolerance must not be negative, not {self.tolerance}")


class Behavior(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """``spec.behavior``: the rules of both directions."""

    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()


class Pace(Struct, frozen=True, gc=False):
    """The rules of one direction with every default filled in."""

    window_s: float
    select: Select
    policies: tuple[ScalingPolicy, ...]

    @property
    def longest_s(self) -> float:
        """The longest period of any policy: older events are of no use."""
        return max((policy.period_s for policy in self.policies), default=0.0)


class Paces(Struct, frozen=True, gc=False):
    """Both directions."""

    up: Pace
    down: Pace


class ScaleEvent(Struct, frozen=True, gc=False):
    """A rescale that was made; `change` is how many pods, up or down."""

    change: int
    at_s: float
    outdated: bool = False


DEFAULT_UP = (ScalingPolicy("Pods", 4), ScalingPolicy("Percent", 100))
DEFAULT_DOWN = (ScalingPolicy("Percent", 100),)


@lru_cache(maxsize=64)
def paces(behavior: Behavior, down_window_s: float = 300.0) -> Paces:
    """Fill in the defaults; `down_window_s` is the flag of the whole controller.

    >>> paces(Behavior()).down.window_s, paces(Behavior()).up.policies[0].value
    (300.0, 4)
    """
    return Paces(
        _filled(behavior.scale_up, 0.0, DEFAULT_UP),
        _filled(behavior.scale_down, down_window_s, DEFAULT_DOWN),
    )


def up_limit(
    current: int,
    pace: Pace,
    up_events: Iterable[ScaleEvent],
    down_events: Iterable[ScaleEvent],
    now_s: float,
) -> int:
    """The most replicas that the policies allow now.

    Each policy counts from where the fleet stood at the start of its period.

    >>> pace = Pace(0.0, "Max", (ScalingPolicy("Pods", 4, 60), ScalingPolicy("Percent", 50, 60)))
    >>> up_limit(10, pace, [], [], now_s=0.0)
    15
    >>> up_limit(10, pace, [ScaleEvent(4, at_s=-30.0)], [], now_s=0.0)
    10
    """
    if pace.select == "Disabled":
        return current
    limits = [
        start + policy.value if policy.kind == "Pods" else ceil(start * (1 + policy.value / 100))
        for policy, start in _starts(current, pace, up_events, down_events, now_s)
    ]
    if pace.select == "Min":
        return min(limits, default=MAX_INT32)
    return max(limits, default=MIN_INT32)


def down_limit(
    current: int,
    pace: Pace,
    up_events: Iterable[ScaleEvent],
    down_events: Iterable[ScaleEvent],
    now_s: float,
) -> int:
    """The fewest replicas that the policies allow now; percents are cut off, not rounded.

    >>> pace = Pace(300.0, "Min", (ScalingPolicy("Pods", 2, 60), ScalingPolicy("Percent", 50, 60)))
    >>> down_limit(5, pace, [], [], now_s=0.0)
    3
    """
    if pace.select == "Disabled":
        return current
    limits = [
        start - policy.value if policy.kind == "Pods" else int(start * (1 - policy.value / 100))
        for policy, start in _starts(current, pace, up_events, down_events, now_s)
    ]
    if pace.select == "Min":
        return max(limits, default=MIN_INT32)
    return min(limits, default=MAX_INT32)


def rate_limited(
    desired: int,
    current: int,
    rules: Paces,
    up_events: Iterable[ScaleEvent] = (),
    down_events: Iterable[ScaleEvent] = (),
    now_s: float = 0.0,
) -> int:
    """The desired size as far as the policies of its direction allow.

    >>> rate_limited(50, 1, paces(Behavior()))
    5
    """
    if desired > current:
        allowed = up_limit(current, rules.up, up_events, down_events, now_s)
        return min(desired, max(current, allowed))
    if desired < current:
        allowed = down_limit(current, rules.down, up_events, down_events, now_s)
        return max(desired, min(current, allowed))
    return desired


def change_within(events: Iterable[ScaleEvent], period_s: float, now_s: float) -> int:
    """How many pods were added (or removed) in less than the last `period_s`.

    >>> change_within([ScaleEvent(7, at_s=-60.0), ScaleEvent(6, at_s=-59.0)], 60.0, now_s=0.0)
    6
    """
    cutoff_s = now_s - period_s
    return sum(event.change for event in events if event.at_s > cutoff_s)


def _starts(
    current: int,
    pace: Pace,
    up_events: Iterable[ScaleEvent],
    down_events: Iterable[ScaleEvent],
    now_s: float,
) -> Iterator[tuple[ScalingPolicy, int]]:
    """Each policy, and where the fleet stood at the start of its period."""
    for policy in pace.policies:
        added = change_within(up_events, policy.period_s, now_s)
        removed = change_within(down_events, policy.period_s, now_s)
        yield policy, current - added + removed


def _filled(rules: ScalingRules, window_s: float, policies: tuple[ScalingPolicy, ...]) -> Pace:
    return Pace(
        window_s if rules.window_s is None else rules.window_s,
        rules.select or "Max",
        policies if rules.policies is None else rules.policies,
    )
