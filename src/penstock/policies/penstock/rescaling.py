"""What a change of the fleet takes: how long executors need to come, and what it costs the job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from penstock.core.model import Snapshot
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.capacity_estimate import CapacityEstimate

#: How much of a new measurement is believed.
BELIEF = 0.3
#: How long executors are taken to need before any came.
ASSUMED_STARTUP_S = 30.0
#: What no start-up is taken to go below, and no start-up and no hold-up to exceed.
SHORTEST_STARTUP_S = 5.0
LONGEST_STARTUP_S = 600.0
LONGEST_HOLD_UP_S = 120.0
#: So long after a change of the fleet its hold-up is over.
OVER_S = 40.0
#: A job that uses less of its capacity has caught up before anybody looks.
IDLE = 0.5
#: Whoever should be so many seconds of arrivals behind is flooded.
FLOODED_S = 20.0


def learn_startup(
    known_s: float | None, snapshot: Snapshot, previous: Snapshot | None, asked_s: float
) -> float | None:
    """How long executors take to come, from those that came since they were asked for.

    The slowest counts: a plan that waits for the mean is late half of the time.

    >>> from penstock.core.model import ExecutorSample, Fleet
    >>> came = (ExecutorSample("1", 0.0), ExecutorSample("2", 120.0))
    >>> before = Snapshot(110.0, Fleet(2, 1, 1))
    >>> now = Snapshot(125.0, Fleet(2, 2, 2), executors=came)
    >>> learn_startup(None, now, before, asked_s=100.0)
    20.0
    >>> learn_startup(30.0, now, before, asked_s=100.0)  # 30 + 0.3 x (20 - 30)
    27.0
    """
    if snapshot.fleet.active < snapshot.fleet.target:
        # Those that are still awaited take at least as long as they have taken so far.
        waited_s = max(
            (
                snapshot.at_s - one.started_at_s
                for one in snapshot.executors
                if not one.ready and one.started_at_s >= asked_s
            ),
            default=0.0,
        )
        if waited_s > (ASSUMED_STARTUP_S if known_s is None else known_s):
            known_s = min(LONGEST_STARTUP_S, waited_s)
    if previous is None or previous.fleet.active == snapshot.fleet.active:
        return known_s
    took_s = [
        one.started_at_s - asked_s
        for one in snapshot.executors
        if one.ready and one.started_at_s > asked_s
    ]
    if not took_s:
        return known_s
    slowest_s = max(took_s)
    believed_s = slowest_s if known_s is None else known_s + BELIEF * (slowest_s - known_s)
    return min(LONGEST_STARTUP_S, max(SHORTEST_STARTUP_S, believed_s))


def learn_hold_up(
    known_s: float | None, track: CapacityEstimate, recent: Sequence[Snapshot], asked_s: float
) -> float | None:
    """How far behind a change of the fleet leaves the job; `recent` ends with the present.

    A micro-batch job shows it in the batch that waits for state to move, a dataflow that stops for
    it in what waits afterwards beyond what its load and its capacity account for.
    """
    if len(recent) < 2 or track.work_s is None:
        return known_s
    if recent[-1].trigger_interval_s is not None:
        lost_s = _batch_hold_up_s(track, recent)
    else:
        lost_s = _stop_s(track, recent, asked_s)
    if lost_s is None:
        return known_s
    lost_s = min(LONGEST_HOLD_UP_S, lost_s)
    return lost_s if known_s is None else known_s + BELIEF * (lost_s - known_s)


def _stop_s(track: CapacityEstimate, recent: Sequence[Snapshot], asked_s: float) -> float | None:
    """What the stop of a dataflow for a change cost it; told once, when it is over."""
    change = _last_change(recent)
    if change is None or (changed_s := change[1].at_s) < asked_s:
        return None
    if not recent[-2].at_s < changed_s + OVER_S <= recent[-1].at_s:
        return None
    return _unaccounted_s(track, recent, changed_s)


def _unaccounted_s(
    track: CapacityEstimate, recent: Sequence[Snapshot], since_s: float
) -> float | None:
    """How far behind the job fell since then beyond what its load and its capacity account for.

    ``None`` where that cannot be told: under a load far above its capacity a hold-up is a small
    part of what waits, and far below it is made up for at once.
    """
    capacity = Capacity(track, recent[-1].fleet.cores_per_executor)
    lost_s, waiting = 0.0, _waiting(recent[0])
    for before, now in pairwise(recent):
        load_rps = now.arrival_rps
        if now.at_s < since_s or not load_rps:
            waiting = _waiting(now)
            continue
        carried_rps = 0.5 * (capacity.rps(before.fleet.active) + capacity.rps(now.fleet.active))
        waiting = max(0.0, waiting + (now.at_s - before.at_s) * (load_rps - carried_rps))
        if waiting > FLOODED_S * load_rps or load_rps < IDLE * carried_rps:
            return None
        lost_s = max(lost_s, (_waiting(now) - waiting) / load_rps)
    return lost_s


def _waiting(snapshot: Snapshot) -> float:
    """How many records wait."""
    if snapshot.backlog_records is not None:
        return snapshot.backlog_records
    return (snapshot.delay_s or 0.0) * (snapshot.arrival_rps or 0.0)


def _batch_hold_up_s(track: CapacityEstimate, recent: Sequence[Snapshot]) -> float | None:
    """By how much a batch took longer than the smaller of two fleets needs for it, at worst.

    It is the batch that was under way when the fleet changed, or the first one after it. Both may
    be told of long after the change; this is told once, when both are over.
    """
    change = _last_change(recent)
    if change is None:
        return None
    before, after = change
    changed_s = _changed_between(before, after)
    batches = [batch for seen in recent for batch in seen.batches]
    first_s = min(
        (batch.started_at_s for batch in batches if batch.started_at_s >= changed_s), default=inf
    )
    now = recent[-1]
    if first_s not in [batch.started_at_s for batch in now.batches]:
        return None
    executors = min(before.fleet.active, after.fleet.active)
    capacity = Capacity(track, now.fleet.cores_per_executor)
    rps, fixed_s = capacity.rps(executors), capacity.fixed_s(executors)
    held_up_s = 0.0
    for batch in batches:
        if batch.started_at_s + batch.duration_s < changed_s or batch.started_at_s > first_s:
            continue
        usual_s = fixed_s + 1.1 * batch.input_records / max(rps, 1e-9)
        # Of a batch that is long by itself a few percent would look like a hold-up.
        if usual_s < 5.0 * (now.trigger_interval_s or 0.0):
            held_up_s = max(held_up_s, batch.duration_s - usual_s)
    return held_up_s


def _last_change(recent: Sequence[Snapshot]) -> tuple[Snapshot, Snapshot] | None:
    """The last two snapshots between which the fleet changed."""
    for after, before in pairwise(reversed(recent)):
        if before.fleet.active != after.fleet.active:
            return before, after
    return None


def _changed_between(before: Snapshot, after: Snapshot) -> float:
    """When the last of those executors came that were not there before; halfway where some went."""
    came_s = [one.started_at_s for one in after.executors if one.started_at_s > before.at_s]
    return max(came_s, default=0.5 * (before.at_s + after.at_s))
