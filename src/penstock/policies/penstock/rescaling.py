"""What a change of the fleet takes: how long executors need to start, and what it costs the job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.knowledge import Rescale
from penstock.core.model import Snapshot
from penstock.policies.penstock.capacity import Capacity
from penstock.policies.penstock.estimate import CONFIRMED, CapacityEstimate

WEIGHT = 0.3  #: The weight of a new measurement.
ASSUMED_STARTUP_S = 30.0  #: The start-up time that is assumed before any executor came.
#: Bounds of what is learned.
SHORTEST_STARTUP_S, LONGEST_STARTUP_S, LONGEST_HOLD_UP_S = 5.0, 600.0, 120.0
OVER_S = 40.0  #: How long after a change of the fleet its hold-up is over.
IDLE = 0.5  #: A job that uses less of its capacity has caught up before the next turn.
#: States that differ by this part of their mean say half of what each byte costs.
DOUBT = 0.2
FLOODED_S = 20.0  #: With a larger expected lag, in seconds of arrivals, no hold-up is measured.


class HoldUp(Struct, frozen=True, gc=False, omit_defaults=True):
    """By how much a change of the fleet increases the lag: a line over the state that moves.

    `mean_s` and `mean_bytes` are the means of what was measured, with the two moments of a
    least-squares line. The line counts as far as states have differed.

    >>> known = HoldUp()
    >>> for gigabytes in (1.0, 2.0, 3.0, 4.0):
    ...     known = known.updated(1.0 + 2.0 * gigabytes, 1e9 * gigabytes)
    >>> round(known.seconds(None), 1), round(known.seconds(8e9), 1)
    (5.9, 15.5)
    """

    mean_s: float | None = None
    mean_bytes: float = 0.0
    bytes_bytes: float = 0.0
    bytes_s: float = 0.0

    def seconds(self, state_bytes: float | None) -> float | None:
        """What is expected with that much state; the mean where the state is not measured."""
        if self.mean_s is None or state_bytes is None or self.bytes_bytes <= 0.0:
            return self.mean_s
        slope = max(0.0, self.bytes_s) / (self.bytes_bytes + (DOUBT * self.mean_bytes) ** 2)
        expected_s = self.mean_s + slope * (state_bytes - self.mean_bytes)
        return min(LONGEST_HOLD_UP_S, max(0.0, expected_s))

    def updated(self, lost_s: float, state_bytes: float | None) -> HoldUp:
        """The line with one more measurement."""
        moved_bytes = state_bytes or 0.0
        if self.mean_s is None:
            return HoldUp(lost_s, moved_bytes)
        more_bytes, longer_s = moved_bytes - self.mean_bytes, lost_s - self.mean_s
        return HoldUp(
            self.mean_s + WEIGHT * longer_s,
            self.mean_bytes + WEIGHT * more_bytes,
            (1.0 - WEIGHT) * (self.bytes_bytes + WEIGHT * more_bytes * more_bytes),
            (1.0 - WEIGHT) * (self.bytes_s + WEIGHT * more_bytes * longer_s),
        )


class Growth(Struct, frozen=True, gc=False, omit_defaults=True):
    """The last time the fleet grew: what it carried, was expected to carry, and what came of it."""

    at_s: float = 0.0
    before: int = 0
    after: int = 0
    before_rps: float = 0.0
    expected_rps: float = 0.0
    gain: float | None = None  #: The part of what was expected that came, once known.
    known_at_s: float = 0.0


def learn_growth(
    known: Growth,
    track: CapacityEstimate,
    snapshot: Snapshot,
    rescales: Sequence[Rescale],
    settling_s: float,
) -> Growth:
    """What the last growth of the fleet was good for, judged once it has settled."""
    fleet, capacity = snapshot.fleet, Capacity(track, snapshot.fleet.cores_per_executor)
    if rescales and (last := rescales[-1]).after > last.before and last.at_s != known.at_s:
        both = capacity.rps(last.before), capacity.rps(last.after)
        # What was not known before is not missed afterwards.
        known_rps = both if track.samples >= CONFIRMED else ()
        return Growth(last.at_s, last.before, last.after, *known_rps)
    is_due = snapshot.at_s - known.at_s >= settling_s and known.gain is None
    if not is_due or not fleet.active == fleet.target == known.after == track.executors:
        return known
    more_rps = known.expected_rps - known.before_rps
    if more_rps <= 0.0:
        return known
    gain = (capacity.rps(known.after) - known.before_rps) / more_rps
    return replace(known, gain=gain, known_at_s=snapshot.at_s)


def learn_startup(
    known_s: float | None, snapshot: Snapshot, previous: Snapshot | None, asked_s: float
) -> float | None:
    """How long executors take to start, from those that came since they were asked for.

    The slowest counts: a plan that waits for the mean is late half of the time.
    """
    at_s, executors = snapshot.at_s, snapshot.executors
    if snapshot.fleet.active < snapshot.fleet.target:
        # Those that are still starting take at least as long as they have taken so far.
        starting = [one for one in executors if not one.ready and one.started_at_s >= asked_s]
        waited_s = max((at_s - one.started_at_s for one in starting), default=0.0)
        if waited_s > (ASSUMED_STARTUP_S if known_s is None else known_s):
            known_s = min(LONGEST_STARTUP_S, waited_s)
    if previous is None or previous.fleet.active == snapshot.fleet.active:
        return known_s
    came = [one for one in executors if one.ready and one.started_at_s > asked_s]
    if not came:
        return known_s
    slowest_s = max(one.started_at_s for one in came) - asked_s
    learned_s = slowest_s if known_s is None else known_s + WEIGHT * (slowest_s - known_s)
    return min(LONGEST_STARTUP_S, max(SHORTEST_STARTUP_S, learned_s))


def learn_hold_ups(
    growing: HoldUp,
    shrinking: HoldUp,
    track: CapacityEstimate,
    recent: Sequence[Snapshot],
    asked_s: float,
) -> tuple[HoldUp, HoldUp]:
    """What growing and shrinking cost, with the last change of the fleet.

    New executors of a query load code, and state if there is any, while its next batch waits for
    them; those that leave are hardly missed. A dataflow stops for both: they are the same there.
    """
    change = _last_change(recent)
    if change is None:
        return growing, shrinking
    if recent[-1].trigger_interval_s is None or change[0].fleet.active < change[1].fleet.active:
        return learn_hold_up(growing, track, recent, asked_s), shrinking
    return growing, learn_hold_up(shrinking, track, recent, asked_s)


def learn_hold_up(
    known: HoldUp, track: CapacityEstimate, recent: Sequence[Snapshot], asked_s: float
) -> HoldUp:
    """By how much a change of the fleet increases the lag; `recent` ends with the present.

    A micro-batch job shows it in the batch that waits for state to move; a dataflow, which stops,
    in what waits afterwards beyond what its load and its capacity account for.
    """
    if len(recent) < 2 or track.work_s is None:
        return known
    is_batched = recent[-1].trigger_interval_s is not None
    lost_s = _batch_hold_up_s(track, recent) if is_batched else _stop_s(track, recent, asked_s)
    if lost_s is None:
        return known
    return known.updated(min(LONGEST_HOLD_UP_S, lost_s), recent[-1].state_bytes)


def _stop_s(track: CapacityEstimate, recent: Sequence[Snapshot], asked_s: float) -> float | None:
    """What the stop of a dataflow for a change cost it; measured once, when it is over.

    ``None`` where it cannot be: far above the capacity of a job a hold-up is a small part of its
    lag, far below it is made up for at once.
    """
    change = _last_change(recent)
    if change is None or (changed_s := change[1].at_s) < asked_s:
        return None
    if not recent[-2].at_s < changed_s + OVER_S <= recent[-1].at_s:
        return None
    capacity = Capacity(track, recent[-1].fleet.cores_per_executor)
    lost_s, expected = 0.0, _waiting(recent[0])
    for before, now in pairwise(recent):
        load_rps = now.arrival_rps
        if now.at_s < changed_s or not load_rps:
            expected = _waiting(now)
            continue
        carried_rps = 0.5 * (capacity.rps(before.fleet.active) + capacity.rps(now.fleet.active))
        expected = max(0.0, expected + (now.at_s - before.at_s) * (load_rps - carried_rps))
        if expected > FLOODED_S * load_rps or load_rps < IDLE * carried_rps:
            return None
        lost_s = max(lost_s, (_waiting(now) - expected) / load_rps)
    return lost_s


def _waiting(snapshot: Snapshot) -> float:
    """How many records wait."""
    if snapshot.backlog_records is not None:
        return snapshot.backlog_records
    return (snapshot.delay_s or 0.0) * (snapshot.arrival_rps or 0.0)


def _batch_hold_up_s(track: CapacityEstimate, recent: Sequence[Snapshot]) -> float | None:
    """By how much a batch took longer than the smaller of two fleets needs for it, at worst.

    It is the batch that ran when the fleet changed, or the first one after it. Both may be reported
    long after the change; the result is given once, when both are over.
    """
    if (change := _last_change(recent)) is None:
        return None
    before, after = change
    came_s = [one.started_at_s for one in after.executors if one.started_at_s > before.at_s]
    # When the last new executor came; halfway between the snapshots where some were removed.
    changed_s = max(came_s, default=0.5 * (before.at_s + after.at_s))
    now, batches = recent[-1], [batch for seen in recent for batch in seen.batches]
    later_s = [batch.started_at_s for batch in batches if batch.started_at_s >= changed_s]
    first_s = min(later_s, default=inf)
    if first_s not in [batch.started_at_s for batch in now.batches]:
        return None
    executors = min(before.fleet.active, after.fleet.active)
    capacity = Capacity(track, now.fleet.cores_per_executor)
    rps, fixed_s = capacity.rps(executors), capacity.fixed_s(executors)
    held_up_s = None
    for batch in batches:
        if batch.started_at_s + batch.duration_s < changed_s or batch.started_at_s > first_s:
            continue
        usual_s = fixed_s + 1.1 * batch.input_records / max(rps, 1e-9)
        # A few percent of a batch that is long by itself are no hold-up.
        if usual_s < 5.0 * (now.trigger_interval_s or 0.0):
            held_up_s = max(held_up_s or 0.0, batch.duration_s - usual_s)
    return held_up_s


def _last_change(recent: Sequence[Snapshot]) -> tuple[Snapshot, Snapshot] | None:
    """The last two snapshots between which the fleet changed."""
    for after, before in pairwise(reversed(recent)):
        if before.fleet.active != after.fleet.active:
            return before, after
    return None
