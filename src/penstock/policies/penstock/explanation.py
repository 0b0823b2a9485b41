"""A decision in one sentence with its numbers."""

from __future__ import annotations

from penstock.core.model import Decision, Reason
from penstock.policies.penstock.plan_inputs import PlanInputs

#: The edges of the fan around a forecast, in standard deviations: 8 of 10 lie between them.
FAN = 1.28


def catch_up_decision(sight: PlanInputs, executors: int, memory: object) -> Decision:
    """So far behind that no plan matters: all that help, until it has caught up."""
    carries = sight.capacity.rps(executors)
    text = (
        f"{sight.behind_s:.0f} s behind at {_k(sight.load_rps)}: {executors} executors, as many as "
        f"help, carry {_k(carries)}"
    )
    evidence = {"behind_s": sight.behind_s, "load_rps": sight.load_rps}
    reason = Reason("far_behind", text, evidence)
    return Decision.of(executors, reason, expected_rps=carries, memory=memory)


def explain_plan(sight: PlanInputs, best: int, saved_s: float, memory: object) -> Decision:
    """Why the fleet should have `best` executors, which saves so many executor-seconds."""
    mean = sight.load.mean
    peak_rps = max(mean)
    deviation_rps = sight.load.deviation[mean.index(peak_rps)]
    evidence = {
        "load_rps": sight.load_rps,
        "peak_rps": peak_rps,
        "peak_low_rps": max(0.0, peak_rps - FAN * deviation_rps),
        "peak_high_rps": peak_rps + FAN * deviation_rps,
        "horizon_s": len(mean) * sight.bin_s,
        "capacity_rps": sight.capacity.rps(best),
        "behind_s": sight.behind_s,
        "saved_executor_s": saved_s,
    }
    code, verb = _verdict(sight, best, saved_s)
    return Decision.of(
        best,
        Reason(code, f"{_course(sight, peak_rps)}; {verb}", evidence),
        expected_rps=evidence["capacity_rps"],
        memory=memory,
    )


def _course(sight: PlanInputs, peak_rps: float) -> str:
    """Where the load goes, in words."""
    mean, now, surges = sight.load.mean, sight.load_rps, sight.surges
    if surges.rising:
        return f"load surges from {_k(surges.calm_rps)} to {_k(now)}"
    if surges.began_s is None and surges.recur and not peak_rps > 1.05 * now:
        return f"load stays at {_k(now)}, surges of {_k(surges.rise_rps())} recur"
    if peak_rps > 1.05 * now:
        ahead_min = mean.index(peak_rps) * sight.bin_s / 60.0
        return f"load rises from {_k(now)} to {_k(peak_rps)} in {ahead_min:.0f} min"
    if min(mean) < 0.95 * now:
        ahead_min = mean.index(min(mean)) * sight.bin_s / 60.0
        return f"load falls from {_k(now)} to {_k(min(mean))} in {ahead_min:.0f} min"
    return f"load stays at {_k(now)}"


def _verdict(sight: PlanInputs, best: int, saved_s: float) -> tuple[str, str]:
    """What is done about it, and what for."""
    target, capacity = sight.target, sight.capacity
    carries = f"{target} executors carry {_k(capacity.rps(target))}"
    bound = limit_of(sight)
    if best <= target and bound is not None:
        return (
            "more_will_not_help",
            f"{carries}, {sight.behind_s:.0f} s behind: {bound}",
        )
    if best == target:
        return "plan_holds", f"{carries}, {sight.behind_s:.1f} s behind: no move pays"
    moved = abs(best - target)
    many = "one" if moved == 1 else str(moved)
    if best < target:
        left = f"{best} would carry {_k(capacity.rps(best))}"
        return (
            "plan_shrinks",
            f"{carries}, {left}: {many} fewer saves {saved_s:.0f} executor-s",
        )
    cost_s = moved * (sight.startup_s + sight.move_s)
    late_s = (saved_s + cost_s) / max(sight.late_s, 1e-9)
    return "plan_grows", (
        f"{carries}, {sight.behind_s:.1f} s behind; {many} more now costs "
        f"{cost_s / 3600.0:.2f} executor-hours and avoids {late_s:.1f} s of lateness"
    )


def limit_of(sight: PlanInputs) -> str | None:
    """What holds the job up where no fleet would do better; ``None`` while one would."""
    capacity, target = sight.capacity, sight.target
    # Records wait for up to two batches, and no batch is shorter than its fixed cost.
    if sight.trigger_s is not None and 2.0 * sight.fixed_s > sight.slo_s:
        driver_s = capacity.track.fixed_s or 0.0
        where = "the sink or the start of tasks" if 2.0 * driver_s < sight.fixed_s else "the driver"
        return f"{where} takes {sight.fixed_s:.1f} s of each batch, which executors do not shorten"
    here, twice = capacity.rps(target), capacity.rps(2 * target)
    if sight.load_rps < 0.97 * here or twice > 1.05 * here:
        return None
    if capacity.most is not None and target >= capacity.most:
        return f"{capacity.most} executors have all partitions, more would have none"
    if capacity.track.serial_s * here > 0.5:
        return "one task or key holds the others up, and more executors do not speed it up"
    return "what a record costs does not shrink with more executors"


def _k(rps: float) -> str:
    return f"{rps / 1e3:.1f} k/s"
