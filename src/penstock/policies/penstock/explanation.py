"""A decision as a sentence: what is seen, expected and done, its cost, and what it avoids."""

from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.model import Decision, Outlook, Reason
from penstock.core.phrases import counted, due, duration, executors, rate
from penstock.policies.penstock.account import span_s
from penstock.policies.penstock.days import rounded
from penstock.policies.penstock.outlook import FAN, expect
from penstock.policies.penstock.planning import PlanInputs, smallest

NOTICED_S = 1.0  #: A shorter hold-up is not mentioned.
STATE_SHOWS_BYTES = 1e7  #: Moving less state takes no time that shows.
CHANGE = 0.05  #: A smaller relative change of the load is none.


class JobBound(NamedTuple):
    """What limits a job where no fleet would do better, in words with what helps."""

    code: str
    text: str


def catch_up_decision(inputs: PlanInputs, grown: int, memory: object) -> Decision:
    """The lag is so large that no plan matters: as many as help, until the job has caught up."""
    carries_rps = inputs.capacity.rps(grown)
    if inputs.coming_rps > carries_rps:
        seen = f"load is {rate(inputs.load_rps)}, more than any fleet carries"
    else:
        seen = f"load is {rate(inputs.load_rps)}, {_waiting(inputs)}"
    why = "the most allowed" if grown == inputs.limits.max_executors else "more would not help"
    text = f"{seen}: {executors(grown, 'carry')} {rate(carries_rps)}, {why}"
    evidence = {"lag_s": inputs.start.lag_s, "load_rps": inputs.load_rps}
    reason = Reason("far_behind", text, evidence)
    outlook = expect(inputs, grown)
    return Decision.of(grown, reason, expected_rps=carries_rps, memory=memory, outlook=outlook)


def explain_plan(
    inputs: PlanInputs, best: int, saved_s: float, memory: object, outlook: Outlook | None = None
) -> Decision:
    """Why the fleet should have `best` executors, which saves `saved_s` executor-seconds."""
    mean = inputs.load.mean
    peak_rps = max(mean)
    deviation_rps = inputs.load.deviation[mean.index(peak_rps)]
    evidence = {
        "load_rps": inputs.load_rps,
        "peak_rps": peak_rps,
        "peak_low_rps": max(0.0, peak_rps - FAN * deviation_rps),
        "peak_high_rps": peak_rps + FAN * deviation_rps,
        "lowest_rps": min(mean),
        "ahead_rps": mean[-1],
        "ahead_low_rps": max(0.0, mean[-1] - FAN * inputs.load.deviation[-1]),
        "ahead_high_rps": mean[-1] + FAN * inputs.load.deviation[-1],
        "horizon_s": len(mean) * inputs.bin_s,
        "capacity_rps": inputs.capacity.rps(best),
        "lag_s": inputs.start.lag_s,
        "saved_executor_s": saved_s,
        "rescale_s": inputs.rescale_s,
    }
    if inputs.earlier is not None:
        evidence["earlier_rps"] = inputs.earlier.arrival_rps or 0.0
    load, rises = load_phrase(inputs, shrinks=best < inputs.start.target)
    code, action = _action(inputs, best, saved_s, rises)
    short = {name: rounded(value, 6) for name, value in evidence.items()}
    reason = Reason(code, f"{load}; {action}", short)
    carries_rps = evidence["capacity_rps"]
    carries_rps = rounded(carries_rps, 6)
    return Decision.of(best, reason, expected_rps=carries_rps, memory=memory, outlook=outlook)


def load_phrase(inputs: PlanInputs, shrinks: bool) -> tuple[str, bool]:
    """The load now, its last minute and what is expected of it; and whether it rises or will."""
    now, earlier, surges = inputs.load_rps, inputs.earlier, inputs.surges
    if inputs.surge_rises:
        return f"load surges from {rate(surges.calm_rps)} to {rate(now)}", True
    text, trend = f"load is {rate(now)}", 0
    if earlier is not None:
        before = earlier.arrival_rps or 0.0
        trend = _direction(before, now)
        was = f"({rate(now)}, was {rate(before)} {duration(inputs.at_s - earlier.at_s)} ago)"
        rises = text + was.replace(f"({rate(now)}, ", " (") if shrinks else f"load rises now {was}"
        text = {-1: f"load falls now {was}", 0: text, 1: rises}[trend]
    peak, lowest = max(inputs.load.mean), min(inputs.load.mean)
    if _direction(now, peak) > 0:
        link = "but" if trend < 0 else "and"
        # That a fleet shrinks because the load rises is not what the words should say.
        verb = "reach at most" if shrinks else "rise to"
        text += f" {link} is expected to {verb} {rate(peak)} {_when(inputs, peak)}"
    elif _direction(now, lowest) < 0:
        link = "but" if trend > 0 else "and"
        text += f" {link} is expected to fall to {rate(lowest)} {_when(inputs, lowest)}"
    else:
        text += " and is expected to stay there"
    if surges.began_s is None and surges.recur and len(surges.past) > 1:
        text += f"; surges of {rate(surges.rise_rps())} recur, {len(surges.past)} were seen"
    return text, trend > 0 or _direction(now, peak) > 0


def _direction(before_rps: float, after_rps: float) -> int:
    """1 for a rise, -1 for a fall, 0 for a change that is small or does not show in the text."""
    if rate(before_rps) == rate(after_rps):
        return 0
    if after_rps > (1.0 + CHANGE) * before_rps:
        return 1
    return -1 if after_rps < (1.0 - CHANGE) * before_rps else 0


def _when(inputs: PlanInputs, rps: float) -> str:
    """When the forecast first has that load: the middle of its bin."""
    return due((inputs.load.mean.index(rps) + 0.5) * inputs.bin_s)


def _action(inputs: PlanInputs, best: int, saved_s: float, rises: bool) -> tuple[str, str]:
    """A code, what is done, and why."""
    target, most = inputs.start.target, inputs.limits.max_executors
    starting = target - inputs.start.active
    fleet = executors(target, "carry")
    if starting > 0:
        fleet = f"{executors(target)} ({starting} still starting) {fleet.rpartition(' ')[2]}"
    state = f"{fleet} {rate(inputs.capacity.rps(target))}, {_waiting(inputs)}"
    bound = limit_of(inputs) if best <= target else None
    if best < target:
        saving = _saving(inputs, best, saved_s)
        if bound is not None:
            return bound.code, f"{state}; {bound.text}: {saving}"
        return "plan_shrinks", f"{state}; {_why_fewer(inputs, best, rises)}: {saving}"
    if bound is not None:
        return bound.code, f"{state}: {bound.text}"
    if best == target:
        is_late = inputs.waits_s > inputs.slo_s
        if target >= most and (is_late or inputs.load_rps > inputs.capacity.rps(target)):
            helps = _at_maximum(inputs)
            return "at_maximum", f"{state}: max_executors={most} does not allow more; {helps}"
        why = "kept until no record is late" if is_late else "no other size is cheaper"
        return "plan_holds", f"{state}: {why}"
    return "plan_grows", f"{state}; {_growth(inputs, best, saved_s)}"


def _at_maximum(inputs: PlanInputs) -> str:
    """Which maximum would carry the load."""
    target, peak_rps = inputs.start.target, max(inputs.load_rps, *inputs.load.mean)
    size = smallest(inputs.capacity, peak_rps, target + 1, 8 * target)
    is_enough = inputs.capacity.rps(size) >= peak_rps
    return f"{size} would carry the load" if is_enough else "no fleet would carry the load"


def _why_fewer(inputs: PlanInputs, best: int, rises: bool) -> str:
    """What a smaller fleet carries, and why that is enough even if the load rises."""
    carried_rps = inputs.capacity.rps(best)
    text = f"{best} would carry {rate(carried_rps)}"
    if not rises:
        return text
    coming = [inputs.load_rps, *inputs.load.mean]
    over = [place for place, rps in enumerate(coming) if rps > carried_rps]
    if not over:
        return f"{text}, which is enough for that"
    if (over[0] - 1) * inputs.bin_s >= inputs.start.startup_s:
        return f"{text}, and more can start before that, in {duration(inputs.start.startup_s)}"
    return f"{text}, and what exceeds that can wait"


def _saving(inputs: PlanInputs, best: int, saved_s: float) -> str:
    most, fewer = inputs.limits.max_executors, inputs.start.target - best
    if inputs.start.target > most:
        return f"max_executors={most} does not allow {inputs.start.target}"
    return f"{fewer} fewer now saves {executor_time(saved_s)} against waiting{_hold_up(inputs)}"


def _growth(inputs: PlanInputs, best: int, saved_s: float) -> str:
    """What more executors cost until they work, and what they avoid."""
    least, moved = inputs.limits.min_executors, best - inputs.start.target
    if inputs.start.target < least:
        return f"min_executors={least} asks for {moved} more"
    cost_s = moved * (inputs.start.startup_s + inputs.prices.move)
    late_s = (saved_s + cost_s) / inputs.prices.late_s if inputs.prices.late_s > 0.0 else 0.0
    text = f"{moved} more now for {executor_time(cost_s)}"
    if late_s < 0.05:
        return f"{text}, growing later costs more{_hold_up(inputs)}"
    return f"{text}, otherwise {duration(late_s)} of arrivals are late{_hold_up(inputs)}"


def _hold_up(inputs: PlanInputs) -> str:
    """How long a rescale holds the job up, where that shows, and because of how much state."""
    state = inputs.state_bytes
    if not state or inputs.rescale_s < NOTICED_S:
        return ""
    amount = f"{state / 1e9:.1f} GB" if state >= 1e9 else f"{state / 1e6:.0f} MB"
    what = f"moving {amount} of state" if state >= STATE_SHOWS_BYTES else "a rescale"
    return f"; {what} holds it up for about {duration(inputs.rescale_s)}"


def _waiting(inputs: PlanInputs) -> str:
    """How long records wait; with the SLO where that is shorter."""
    if inputs.waits_s < 0.05:
        return "no records wait"
    text = f"records wait up to {duration(inputs.waits_s)}"
    return f"{text} (SLO {duration(inputs.slo_s)})" if inputs.waits_s > inputs.slo_s else text


def _split(inputs: PlanInputs) -> str:
    """How a job with state gets more partitions, and what that would bring."""
    capacity = inputs.capacity
    if not inputs.state_bytes or capacity.most is None:
        return ""
    tasks = 2 * capacity.most * capacity.cores
    twice_rps = replace(capacity, most=None).rps(2 * capacity.most)
    return (
        f"; with the query stopped, spark._streamingCheckpointManager.repartition(checkpoint, "
        f"{tasks}) of Spark 4.2 would let {2 * capacity.most} carry {rate(twice_rps)}"
    )


def executor_time(seconds: float) -> str:
    """A cost in the unit that fits.

    >>> [executor_time(seconds) for seconds in (0.2, 1.0, 17.4, 90.0, 3600.0)]
    ['less than 1 executor-second', '1 executor-second', '17 executor-seconds',
     '1.5 executor-minutes', '60 executor-minutes']
    """
    if seconds < 0.95:
        return "less than 1 executor-second"
    if seconds < 59.5:
        return counted(round(seconds), "executor-second")
    minutes = seconds / 60.0
    return counted(round(minutes, 1) if minutes < 9.95 else round(minutes), "executor-minute")


def limit_of(inputs: PlanInputs) -> JobBound | None:
    """What limits the job where no fleet would do better, with what helps.

    ``None`` while a larger fleet would do better.
    """
    capacity, target = inputs.capacity, inputs.start.target
    # Records wait for up to two batches, and no batch is shorter than its fixed cost.
    if inputs.trigger_s is not None and 2.0 * inputs.fixed_s > inputs.slo_s:
        return _fixed_limit(inputs)
    here, twice = capacity.rps(target), capacity.rps(2 * target)
    if inputs.load_rps < 0.97 * here or twice > 1.05 * here:
        return None
    if capacity.most is not None and target >= capacity.most:
        helps = _split(inputs) or ": more partitions would let more of them work"
        held = f"{executors(capacity.most, 'have')} all partitions, more would have none"
        return JobBound("out_of_partitions", f"{held}{helps}")
    if capacity.track.serial_s * here > 0.5:
        text = "one task or key delays the others, and more executors do not speed it up"
        return JobBound("skew_bound", f"{text}: split that key or partition")
    text = "the cost of a record does not shrink with more executors"
    return JobBound("contention_bound", f"{text}: look for what they wait for")


def _fixed_limit(inputs: PlanInputs) -> JobBound:
    """Who takes the time of each batch that executors do not shorten."""
    driver_s, batch = inputs.capacity.track.fixed_s or 0.0, inputs.batch
    stages = () if batch is None else batch.stages
    takes = f"takes {inputs.fixed_s:.1f} s of each batch, which executors do not shorten"
    if 2.0 * driver_s < inputs.fixed_s and stages:
        return JobBound("task_bound", f"the start of tasks {takes}: use fewer partitions")
    outside_s = 0.0 if batch is None else batch.phases.get("addBatch", 0.0) - span_s(stages)
    if 2.0 * outside_s > driver_s:
        return JobBound(
            "sink_bound", f"the sink {takes}: write from the tasks, or in fewer requests"
        )
    return JobBound(
        "driver_bound", f"the driver {takes}: give it more cpu, and its plan fewer stages"
    )
