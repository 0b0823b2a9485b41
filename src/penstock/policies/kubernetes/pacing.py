"""How far and how fast an autoscaler may scale: ``spec.behavior``, stabilisation, rate limits.

A policy that scales the Kubernetes way works out what its metrics ask for, says so with
`metric_reason`, and hands both to `settle`. Bounds are guards.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from math import ceil
from typing import Literal, NamedTuple

from msgspec import Struct

from penstock.core.errors import ModelError
from penstock.core.knowledge import Rescale
from penstock.core.model import Decision, Reason
from penstock.core.phrases import executors, resized
from penstock.policies.kubernetes.metrics import MAX_INT32, MIN_INT32, Tolerance

#: The longest period of a policy and the longest window that Kubernetes accepts.
MAX_PERIOD_S, MAX_WINDOW_S = 1800.0, 3600.0

Select = Literal["Max", "Min", "Disabled"]


class ScalingPolicy(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How many pods, or percent of them, may change in one period."""

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
    window_s: Stabilisation window; by default 0 s up and 300 s down.
    select: ``Max`` takes the policy that allows most, ``Min`` the one that allows least,
        ``Disabled`` forbids the direction.
    policies: By default 4 pods or 100 % in 15 s up, and 100 % in 15 s down.
    tolerance: Instead of the tolerance of the whole cluster.
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


class Pace(NamedTuple):
    """The rules of one direction with every default filled in."""

    window_s: float
    select: Select
    policies: tuple[ScalingPolicy, ...]

    @property
    def longest_s(self) -> float:
        """The longest period of any policy: older rescales are of no use."""
        return max((policy.period_s for policy in self.policies), default=0.0)


class Paces(NamedTuple):
    """Both directions."""

    up: Pace
    down: Pace


class ReplicaRecommendation(Struct, frozen=True, gc=False, array_like=True):
    """How many replicas the metrics asked for, and when."""

    replicas: int
    at_s: float


class Recommendations(Struct, frozen=True, tag=True, omit_defaults=True):
    """What a policy remembers of its own recommendations.

    The controller of Kubernetes keeps a list of all. Here only those are kept that none as high
    (or as low) has followed: their first is the highest (the lowest) of the window, so the answers
    are the same. Empty is the cold start.
    """

    highest: tuple[ReplicaRecommendation, ...] = ()
    lowest: tuple[ReplicaRecommendation, ...] = ()


DEFAULT_UP = (ScalingPolicy("Pods", 4), ScalingPolicy("Percent", 100))
DEFAULT_DOWN = (ScalingPolicy("Percent", 100),)


@lru_cache(maxsize=64)
def paces(behavior: Behavior, down_window_s: float = 300.0) -> Paces:
    """Fill in the defaults; `down_window_s` is the flag of the whole controller.

    >>> paces(Behavior()).down.window_s, paces(Behavior()).up.policies[0].value
    (300.0, 4)
    """

    def filled(rules: ScalingRules, window_s: float, policies: tuple[ScalingPolicy, ...]) -> Pace:
        window_s = window_s if rules.window_s is None else rules.window_s
        own = policies if rules.policies is None else rules.policies
        return Pace(window_s, rules.select or "Max", own)

    down = filled(behavior.scale_down, down_window_s, DEFAULT_DOWN)
    return Paces(filled(behavior.scale_up, 0.0, DEFAULT_UP), down)


def replica_limit(
    current: int, pace: Pace, changes: Iterable[Rescale], now_s: float, *, grows: bool
) -> int:
    """The most (on the way down, the fewest) replicas that the policies allow now.

    Each policy counts from where the fleet stood at the start of its period. On the way down
    percents are cut off, not rounded.

    >>> pace = Pace(0.0, "Max", (ScalingPolicy("Pods", 4, 60), ScalingPolicy("Percent", 50, 60)))
    >>> replica_limit(10, pace, [], now_s=0.0, grows=True)
    15
    >>> replica_limit(10, pace, [Rescale(-30.0, before=6, after=10)], now_s=0.0, grows=True)
    10
    """
    if pace.select == "Disabled":
        return current
    limits = []
    for policy in pace.policies:
        start = current - net_change(changes, policy.period_s, now_s)
        by = policy.value if grows else -policy.value
        if policy.kind == "Pods":
            limits.append(start + by)
        else:
            limits.append((ceil if grows else int)(start * (1 + by / 100)))
    if grows == (pace.select == "Min"):
        return min(limits, default=MAX_INT32)
    return max(limits, default=MIN_INT32)


def net_change(changes: Iterable[Rescale], period_s: float, now_s: float) -> int:
    """How many pods were added, less those removed, in less than the last `period_s`.

    >>> net_change([Rescale(-60.0, 1, 8), Rescale(-59.0, 8, 14)], 60.0, now_s=0.0)
    6
    """
    cutoff_s = now_s - period_s
    return sum(change.after - change.before for change in changes if change.at_s > cutoff_s)


def rate_limited(
    desired: int, current: int, rules: Paces, changes: Sequence[Rescale] = (), now_s: float = 0.0
) -> int:
    """The desired size as far as the policies of its direction allow.

    >>> rate_limited(50, 1, paces(Behavior()))
    5
    """
    if desired == current:
        return desired
    cutoff_s = now_s - max(rules.up.longest_s, rules.down.longest_s)
    recent = list(takewhile(lambda change: change.at_s > cutoff_s, reversed(changes)))
    grows = desired > current
    limit = replica_limit(current, rules.up if grows else rules.down, recent, now_s, grows=grows)
    return min(desired, max(current, limit)) if grows else max(desired, min(current, limit))


def seeded(past: Recommendations, current: int, now_s: float) -> Recommendations:
    """Count the size found on the first turn as recommended: nothing shrinks for a window."""
    if past.highest:
        return past
    first = (ReplicaRecommendation(current, now_s),)
    return Recommendations(first, first)


@lru_cache(maxsize=64)
def tolerance_of(behavior: Behavior | None, down: float, up: float) -> Tolerance:
    """The tolerance that holds: the policy's own, unless a direction of `behavior` has one."""
    if behavior is not None:
        own_down, own_up = behavior.scale_down.tolerance, behavior.scale_up.tolerance
        down, up = down if own_down is None else own_down, up if own_up is None else own_up
    return Tolerance(down, up)


def metric_reason(
    seen: str,
    ratio: float,
    wanted: int,
    current: int,
    tolerance: Tolerance,
    evidence: dict[str, float],
) -> Reason:
    """Why metrics that stand at `ratio` times their target ask for this size.

    >>> metric_reason("cpu at 88 % for a target of 80 %", 1.1, 4, 4, Tolerance(), {}).text
    'cpu at 88 % for a target of 80 %: within the tolerance of 10 %, 4 executors stay'
    """
    if wanted == current:
        allowed = 100.0 * (tolerance.up if ratio > 1.0 else tolerance.down)
        near = f"within the tolerance of {allowed:g} %, " if tolerance.covers(ratio) else ""
        return Reason("near_target", f"{seen}: {near}{resized(current, wanted)}", evidence)
    code = "above_target" if wanted > current else "below_target"
    return Reason(code, f"{seen}: {resized(current, wanted)}", evidence)


def settle(
    wanted: int,
    current: int,
    now_s: float,
    past: Recommendations,
    reason: Reason,
    down_window_s: float,
    behavior: Behavior | None = None,
    changes: Sequence[Rescale] = (),
) -> Decision:
    """The decision that is left of `wanted`; each limit that applies adds its reason.

    >>> why = Reason("cpu", "cpu at 140 % of its target")
    >>> decision = settle(14, 3, 0.0, Recommendations(), why, down_window_s=300.0)
    >>> decision.target_executors, decision.reasons[-1].text
    (6, '14 executors wanted, one turn may go from 3 to 6')
    >>> later = settle(1, 14, 60.0, decision.memory, why, down_window_s=300.0)
    >>> later.target_executors, later.reasons[-1].text
    (14, '1 executor wanted, but 14 within the last 300 s')
    """
    wanted = max(0, wanted)
    past = seeded(past, current, now_s)
    reasons: tuple[Reason, ...] = (reason,)
    newest = ReplicaRecommendation(wanted, now_s)
    if behavior is not None:
        return _paced(newest, current, past, reasons, paces(behavior, down_window_s), changes)
    highest = keep_extreme(past.highest, newest, now_s - down_window_s, 1)
    stable = highest[0].replicas
    if stable > wanted:
        reasons = (*reasons, _stabilized(wanted, stable, down_window_s))
    most = 2 * current if current > 2 else 4
    if stable > most:
        reasons = (*reasons, _limited(stable, most, current))
        stable = most
    return Decision(stable, reasons, stable, None, Recommendations(highest))


def _paced(
    newest: ReplicaRecommendation,
    current: int,
    past: Recommendations,
    reasons: tuple[Reason, ...],
    rules: Paces,
    changes: Sequence[Rescale],
) -> Decision:
    """With a behaviour: both directions have a window, and policies limit the rate."""
    now_s, wanted = newest.at_s, newest.replicas
    up_cutoff_s, down_cutoff_s = now_s - rules.up.window_s, now_s - rules.down.window_s
    highest = keep_extreme(past.highest, newest, down_cutoff_s, 1)
    lowest = keep_extreme(past.lowest, newest, up_cutoff_s, -1)
    high = next((kept.replicas for kept in highest if kept.at_s > down_cutoff_s), wanted)
    low = next((kept.replicas for kept in lowest if kept.at_s > up_cutoff_s), wanted)
    stable = min(max(current, low), high)
    if stable != wanted:
        window_s = rules.up.window_s if wanted > stable else rules.down.window_s
        reasons = (*reasons, _stabilized(wanted, stable, window_s))
    left = rate_limited(stable, current, rules, changes, now_s)
    if left != stable:
        reasons = (*reasons, _limited(stable, left, current))
    return Decision(left, reasons, left, None, Recommendations(highest, lowest))


def keep_extreme(
    past: tuple[ReplicaRecommendation, ...],
    newest: ReplicaRecommendation,
    cutoff_s: float,
    sign: int,
) -> tuple[ReplicaRecommendation, ...]:
    """Add a recommendation; the first of the answer is the highest since `cutoff_s`.

    With a `sign` of -1 it is the lowest.

    >>> past = (ReplicaRecommendation(9, 0.0), ReplicaRecommendation(4, 15.0))
    >>> keep_extreme(past, ReplicaRecommendation(6, 30.0), cutoff_s=0.0, sign=1)
    (ReplicaRecommendation(replicas=9, at_s=0.0), ReplicaRecommendation(replicas=6, at_s=30.0))
    """
    least = sign * newest.replicas
    if not past or sign * past[0].replicas <= least:
        return (newest,)
    kept = [old for old in past if old.at_s >= cutoff_s and sign * old.replicas > least]
    return (*kept, newest)


@lru_cache(maxsize=1024)
def _stabilized(wanted: int, stable: int, window_s: float) -> Reason:
    text = f"{executors(wanted)} wanted, but {stable} within the last {window_s:.0f} s"
    return Reason("stabilized", text, {"wanted": wanted, "stable": stable, "window_s": window_s})


def _limited(wanted: int, left: int, current: int) -> Reason:
    text = f"{executors(wanted)} wanted, one turn may go from {current} to {left}"
    return Reason("rate_limited", text, {"wanted": wanted, "limit": left})
