"""What a change of the fleet takes: how long executors need to come, and what it costs the job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.learning.capacity import Capacity
from penstock.learning.track import Track
from penstock.model import Snapshot

#: How much of a new measurement is believed.
BELIEF = 0.3
#: What no start-up and no hold-up is taken to exceed.
LONGEST_STARTUP_S = 600.0
LONGEST_HOLD_UP_S = 120.0
#: So long after a change of the fleet its hold-up is over.
OVER_S = 40.0
#: A job that uses less of its capacity has caught up before anybody looks.
IDLE = 0.5
#: Whoever should be so many seconds of arrivals behind is flooded.
FLOODED_S = 20.0


def learn_startup(
    known_s: float, snapshot: Snapshot, previous: Snapshot | None, asked_s: float
) -> float:
    """How long executors take to come, from those that came since they were asked for.

    The slowest counts: a plan that waits for the mean is late half of the time.

    >>> from penstock.model import ExecutorSample, Fleet
    >>> came = (ExecutorSample("1", 0.0), ExecutorSample("2", 120.0))
    >>> before = Snapshot(110.0, Fleet(2, 1, 1))
    >>> now = Snapshot(125.0, Fleet(2, 2, 2), executors=came)
    >>> learn_startup(30.0, now, before, asked_s=100.0)  # 30 + 0.3 x (20 - 30)
    27.0
    """
    if snapshot.fleet.active < snapshot.fleet.target:
        # Those that are still awaited take at least as long as they have taken so far.
        waited_s = [
            snapshot.at_s - one.started_at_s
            for one in snapshot.executors
            if not one.ready and one.started_at_s >= asked_s
        ]
        known_s = min(LONGEST_STARTUP_S, max(known_s, *waited_s, 0.0))
    if previous is None or previous.fleet.active == snapshot.fleet.active:
        return known_s
    took_s = [
        one.started_at_s - asked_s
        for one in snapshot.executors
        if one.ready and one.started_at_s > asked_s
    ]
    if not took_s:
        return known_s
    return min(LONGEST_STARTUP_S, max(5.0, known_s + BELIEF * (max(took_s) - known_s)))


def learn_hold_up(
    known_s: float | None, track: Track, recent: Sequence[Snapshot], asked_s: float
) -> float | None:
    """How far behind a change of the fleet leaves the job; `recent` ends with the present.

    A micro-batch job shows it in the batch that waits for state to move, a dataflow that stops for
    it in what waits afterwards beyond what its load and its capacity account for.
    """
    if len(recent) < 2 or track.work_s is None:
        return known_s
    if recent[-1].trigger_interval_s is not None:
        lost_s = _batch_hold_up_s(track, *recent[-2:])
    else:
        lost_s = _stop_s(track, recent, asked_s)
    if lost_s is None:
        return known_s
    lost_s = min(LONGEST_HOLD_UP_S, lost_s)
    return lost_s if known_s is None else known_s + BELIEF * (lost_s - known_s)


def _stop_s(track: Track, recent: Sequence[Snapshot], asked_s: float) -> float | None:
    """What the stop of a dataflow for a change cost it; told once, when it is over."""
    changed_s = _changed_s(recent)
    if changed_s is None or changed_s < asked_s:
        return None
    if not recent[-2].at_s < changed_s + OVER_S <= recent[-1].at_s:
        return None
    return _unaccounted_s(track, recent, changed_s)


def _changed_s(recent: Sequence[Snapshot]) -> float | None:
    """When the fleet was last seen to have changed."""
    changes = [
        now.at_s for before, now in pairwise(recent) if before.fleet.active != now.fleet.active
    ]
    return changes[-1] if changes else None


def _unaccounted_s(track: Track, recent: Sequence[Snapshot], since_s: float) -> float | None:
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


def _batch_hold_up_s(track: Track, before: Snapshot, now: Snapshot) -> float | None:
    """By how much a batch took longer than the smaller of two fleets needs for it, at worst."""
    if before.fleet.active == now.fleet.active or not now.batches:
        return None
    executors = min(before.fleet.active, now.fleet.active)
    capacity = Capacity(track, now.fleet.cores_per_executor)
    rps, fixed_s = capacity.rps(executors), capacity.fixed_s(executors)
    held_up_s = 0.0
    for batch in now.batches:
        usual_s = fixed_s + 1.1 * batch.input_records / max(rps, 1e-9)
        # Of a batch that is long by itself a few percent would look like a hold-up.
        if usual_s < 5.0 * (now.trigger_interval_s or 0.0):
            held_up_s = max(held_up_s, batch.duration_s - usual_s)
    return held_up_s
