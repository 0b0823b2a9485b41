"""What keeps a job from doing better right now, from the codes of its last decisions."""

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import Step
from penstock.core.phrases import duration, executors

#: Requested executors that have not come for this long do not come.
NO_ROOM_AFTER_S = 120.0

#: What may limit a job, and what to do about it.
LIMITS = {
    "load": "the fleet has the size that is cheapest for the load",
    "partitions": "all are in use, and more executors would have none: add partitions",
    "max": "the job would get more executors if max_executors were higher",
    "min": "the load needs fewer executors than min_executors",
    "no room": "the cluster does not give the executors that were requested: it has no free node, "
    "or a quota (of the namespace, the queue, spark.cores.max) is used up",
    "budget": "max_cost_per_day withholds executors",
    "skew": "one task or key delays the others, and more executors do not speed it up",
    "sink": "it takes much of each batch, which executors do not shorten",
    "driver": "it takes much of each batch, or starting tasks does: executors do not help",
    "records": "a record costs as much on a larger fleet: look for what tasks wait for",
    "heap": "executors collect garbage for much of their time: give them more memory",
    "guard": "a change waits for its time (cooldown, stabilization, largest step)",
    "unknown": "what the policy needs was not measured at the last turn",
}
#: Which of them a code stands for; the last reason of a decision that has one counts.
CODES = {
    **dict.fromkeys(("parallelism_cap", "out_of_partitions"), "partitions"),
    **dict.fromkeys(("max_executors", "at_maximum", "scheduled_max"), "max"),
    **dict.fromkeys(("min_executors", "scheduled_min"), "min"),
    "budget": "budget",
    **dict.fromkeys(("growth_ineffective", "contention_bound"), "records"),
    "skew_bound": "skew",
    "sink_bound": "sink",
    **dict.fromkeys(("driver_bound", "task_bound"), "driver"),
    **dict.fromkeys(("heap_pressure", "memory_pressure"), "heap"),
    **dict.fromkeys(
        ("cooldown", "cooling_down", "stabilization", "stabilized", "stabilizing", "step_limit",
         "dead_band", "min_lifetime", "rate_limited", "scheduled_quiet", "capacity_unsure"),
        "guard",
    ),
    **dict.fromkeys(("sensor_blind", "stale_data", "not_measured"), "unknown"),
}  # fmt: skip


class Limit(Struct, frozen=True):
    """What limits a job, in a word and in a sentence."""

    name: str
    text: str


def limit_now(steps: Sequence[Step], max_executors: int) -> Limit:
    """What limits the job at the last of these steps.

    >>> from penstock.core.model import Decision, Fleet, Reason, Snapshot
    >>> full = Decision.of(9, Reason("plan_grows", "9")).limited_to(8, Reason("max_executors", "8"))
    >>> limit_now([Step(0.0, Snapshot(0.0, Fleet(8, 8, 8)), full)], 8).name
    'max'
    """
    last = steps[-1]
    receipt, decision, seen = last.receipt, last.decision, last.snapshot
    if seen is not None and (short_s := _short_for(steps)) >= NO_ROOM_AFTER_S:
        text = f"{seen.fleet.registered} of {executors(seen.fleet.target)} for {duration(short_s)}"
        return Limit("no room", f"{LIMITS['no room']} ({text})")
    if receipt is not None and not receipt.accepted and "cluster gave only" in receipt.text:
        return Limit("no room", f"{LIMITS['no room']} ({receipt.text})")
    codes = [CODES[each.code] for each in decision.reasons if each.code in CODES]
    # What waits for its time would not help either where the job is bound by something else.
    bounds = [name for name in codes if name != "guard"]
    name = (bounds or codes or [""])[-1]
    catching_up = decision.reasons[0].code == "far_behind"
    if not name and catching_up and decision.target_executors >= max_executors:
        name = "max"
    return Limit(name or "load", LIMITS[name or "load"])


def _short_for(steps: Sequence[Step]) -> float:
    """For how long there have been fewer executors than were requested, and no more came."""
    last = steps[-1].snapshot
    if last is None or last.fleet.registered >= last.fleet.target:
        return 0.0
    since_s = last.at_s
    for step in reversed(steps):
        if (seen := step.snapshot) is None:
            continue
        if seen.fleet.registered != last.fleet.registered or seen.fleet.target != last.fleet.target:
            break
        since_s = seen.at_s
    return last.at_s - since_s
