"""Stabilisation and limits for policies that scale the Kubernetes way.

A policy works out what its metrics ask for, says so with `metric_reason`, and hands both to
`settle`. Bounds are guards. What is remembered between turns is `Recommendations`, and only as
much of it as can still matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from penstock.core.knowledge import Rescale
from penstock.core.model import Decision, Reason
from penstock.core.phrases import executors, resized
from penstock.policies.kubernetes.behavior import Behavior, ScaleEvent, paces, rate_limited
from penstock.policies.kubernetes.metrics import Tolerance
from penstock.policies.kubernetes.stabilization import ReplicaRecommendation, keep_extreme


class Recommendations(Struct, frozen=True, tag=True, omit_defaults=True):
    """What a policy remembers of its own recommendations.

    Of the past only those are kept that none as high (or as low) has followed: their first is
    the highest (the lowest) of the window. Empty is the cold start.
    """

    highest: tuple[ReplicaRecommendation, ...] = ()
    lowest: tuple[ReplicaRecommendation, ...] = ()


def seeded(past: Recommendations, current: int, now_s: float) -> Recommendations:
    """On the very first turn, the size that was found counts as recommended.

    So a fresh autoscaler shrinks nothing before one window has passed.
    """
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
    >>> metric_reason("cpu at 50 % for a target of 80 %", 0.625, 1, 1, Tolerance(), {}).text
    'cpu at 50 % for a target of 80 %: 1 executor stays'
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
    *reasons: Reason,
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
    if not past.highest:
        past = seeded(past, current, now_s)
    newest = ReplicaRecommendation(wanted, now_s)
    if behavior is not None:
        return _paced(newest, current, past, reasons, behavior, down_window_s, changes)
    highest = keep_extreme(past.highest, newest, now_s - down_window_s, 1)
    memory = Recommendations(highest)
    stable = highest[0].replicas
    if stable > wanted:
        reasons = (*reasons, _stabilized(wanted, stable, down_window_s))
    most = 2 * current if current > 2 else 4
    if stable > most:
        reasons = (*reasons, _limited(stable, most, current))
        stable = most
    return Decision(stable, reasons, stable, None, memory)


def _paced(
    newest: ReplicaRecommendation,
    current: int,
    past: Recommendations,
    reasons: tuple[Reason, ...],
    behavior: Behavior,
    down_window_s: float,
    changes: Sequence[Rescale],
) -> Decision:
    """With a behaviour: both directions have a window, and policies limit the rate."""
    now_s, wanted = newest.at_s, newest.replicas
    rules = paces(behavior, down_window_s)
    up_cutoff_s, down_cutoff_s = now_s - rules.up.window_s, now_s - rules.down.window_s
    highest = keep_extreme(past.highest, newest, down_cutoff_s, 1)
    lowest = keep_extreme(past.lowest, newest, up_cutoff_s, -1)
    high = _first_after(highest, down_cutoff_s, wanted)
    low = _first_after(lowest, up_cutoff_s, wanted)
    stable = min(max(current, low), high)
    if stable != wanted:
        window_s = rules.up.window_s if wanted > stable else rules.down.window_s
        reasons = (*reasons, _stabilized(wanted, stable, window_s))
    up_events, down_events = _events(changes, now_s - max(rules.up.longest_s, rules.down.longest_s))
    left = rate_limited(stable, current, rules, up_events, down_events, now_s)
    if left != stable:
        reasons = (*reasons, _limited(stable, left, current))
    return Decision(left, reasons, left, None, Recommendations(highest, lowest))


def _first_after(kept: tuple[ReplicaRecommendation, ...], cutoff_s: float, otherwise: int) -> int:
    for recommendation in kept:
        if recommendation.at_s > cutoff_s:
            return recommendation.replicas
    return otherwise


def _events(
    changes: Sequence[Rescale], cutoff_s: float
) -> tuple[list[ScaleEvent], list[ScaleEvent]]:
    """Rescales up and down since `cutoff_s`, newest first."""
    up_events: list[ScaleEvent] = []
    down_events: list[ScaleEvent] = []
    for change in reversed(changes):
        if change.at_s <= cutoff_s:
            break
        if change.after > change.before:
            up_events.append(ScaleEvent(change.after - change.before, change.at_s))
        elif change.after < change.before:
            down_events.append(ScaleEvent(change.before - change.after, change.at_s))
    return up_events, down_events


@lru_cache(maxsize=1024)
def _stabilized(wanted: int, stable: int, window_s: float) -> Reason:
    text = f"{executors(wanted)} wanted, but {stable} within the last {window_s:.0f} s"
    return Reason("stabilized", text, {"wanted": wanted, "stable": stable, "window_s": window_s})


def _limited(wanted: int, left: int, current: int) -> Reason:
    text = f"{executors(wanted)} wanted, one turn may go from {current} to {left}"
    return Reason("rate_limited", text, {"wanted": wanted, "limit": left})
