"""What a change of the fleet takes: how long executors need to come, and what it costs the job."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.learning.capacity import Capacity, Track
from penstock.model import Snapshot

#: How much of a new measurement is believed.
BELIEF = 0.3
#: What no start-up and no hold-up is taken to exceed.
LONGEST_STARTUP_S = 600.0
LONGEST_HOLD_UP_S = 120.0
#: Who gets so many times what it carries is flooded.
FLOODED = 1.5


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
    it in the delay of the minute after.
    """
    if len(recent) < 2:
        return known_s
    before, now = recent[-2], recent[-1]
    if now.trigger_interval_s is not None:
        if before.fleet.active == now.fleet.active or track.work_s is None or not now.batches:
            return known_s
        lost_s = _longest_hold_up_s(track, now, min(before.fleet.active, now.fleet.active))
    else:
        # Once, a minute after it was asked for.
        if now.at_s - asked_s < 60.0 or before.at_s - asked_s >= 60.0:
            return known_s
        if _flooded(track, recent):
            return known_s  # it falls behind by that alone
        delays = [(one.at_s, one.delay_s) for one in recent if one.delay_s is not None]
        usual_s = max((delay for at_s, delay in delays if at_s <= asked_s), default=0.0)
        worst_s = max((delay for at_s, delay in delays if at_s > asked_s), default=0.0)
        lost_s = max(0.0, worst_s - usual_s)
    lost_s = min(LONGEST_HOLD_UP_S, lost_s)
    return lost_s if known_s is None else known_s + BELIEF * (lost_s - known_s)


def _flooded(track: Track, recent: Sequence[Snapshot]) -> bool:
    """Whether far more came at some time than even the largest of the fleets carries."""
    fleet = max((one.fleet for one in recent), key=lambda one: one.target)
    carried_rps = Capacity(track, fleet.cores_per_executor).rps(max(1, fleet.target))
    return any((one.arrival_rps or 0.0) > FLOODED * carried_rps > 0.0 for one in recent)


def _longest_hold_up_s(track: Track, snapshot: Snapshot, executors: int) -> float:
    """By how much a batch took longer than so many executors need for it, at worst."""
    capacity = Capacity(track, snapshot.fleet.cores_per_executor)
    rps, fixed_s = capacity.rps(executors), capacity.fixed_s(executors)
    held_up_s = 0.0
    for batch in snapshot.batches:
        usual_s = fixed_s + 1.1 * batch.input_records / max(rps, 1e-9)
        # Of a batch that is long by itself a few percent would look like a hold-up.
        if usual_s < 5.0 * (snapshot.trigger_interval_s or 0.0):
            held_up_s = max(held_up_s, batch.duration_s - usual_s)
    return held_up_s
