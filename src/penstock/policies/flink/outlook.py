"""What was found out about a job at one turn, and how to say it."""

from math import inf, isfinite, isinf

from msgspec import Struct

from penstock.core.model import Reason
from penstock.core.phrases import counted, duration, rate
from penstock.core.phrases import executors as count_executors
from penstock.policies.flink.evaluation import Options, VertexLoad, required_rps
from penstock.policies.flink.metrics_window import MetricsWindow
from penstock.policies.flink.vertex import JobPlan


class JobEvaluation(Struct, frozen=True, gc=False):
    """All that was found out about a job at one turn."""

    sight: MetricsWindow
    loads: dict[str, VertexLoad]
    plan: JobPlan
    options: Options
    restart_s: float

    @property
    def tasks(self) -> dict[str, int]:
        parallelism = {name: v.parallelism for name, v in self.sight.vertices.items()}
        return parallelism | self.plan.scaled

    @property
    def widest(self) -> str:
        tasks, changes = self.tasks, self.plan.changes
        return max(tasks, key=lambda name: (tasks[name], changes[name].wanted))

    @property
    def is_called_for(self) -> bool:
        """Whether a vertex that left its band is a reason to change the fleet.

        One that merely could do with less than the widest is none: it has to follow that one,
        and is outside its band for as long as it does.
        """
        tasks, most = self.tasks, self.tasks[self.widest]
        return any(
            self.plan.changes[name].outside
            and (tasks[name] == most or tasks[name] > self.sight.vertices[name].parallelism)
            for name in self.plan.scaled
        )

    @property
    def needed_rps(self) -> float:
        demand, target = self.loads[self.widest].demand, self.options.utilization_target
        return required_rps(demand, target, self.options, self.restart_s) or 0.0

    @property
    def story(self) -> str:
        """What the widest vertex can do and has to do."""
        load = self.loads[self.widest]
        can_rps = load.capacity_rps
        if can_rps is None or isinf(can_rps):
            return f"{self.widest} is idle"
        target_rps = load.demand.target_rps or 0.0
        return (
            f"{self.widest} can process {rate(can_rps)}, {rate(target_rps)} arrive and "
            f"{rate(self.needed_rps)} are needed"
        )

    @property
    def evidence(self) -> dict[str, float]:
        load = self.loads[self.widest]
        numbers = {
            "capacity_rps": load.capacity_rps,
            "target_rps": load.demand.target_rps,
            "catch_up_rps": load.demand.catch_up_rps,
            "needed_rps": self.needed_rps,
            "scale_up_below_rps": load.band.scale_up_below_rps,
            "scale_down_above_rps": load.band.scale_down_above_rps,
            "wanted_tasks": self.plan.changes[self.widest].wanted,
        }
        return {key: x for key, x in numbers.items() if x is not None and isfinite(x)}

    def reason_to_hold(self, now_s: float, executors: int) -> Reason:
        """Why the fleet stays as it is, by its widest vertex."""
        widest, change = self.widest, self.plan.changes[self.widest]
        if change.cause == "scale_down_delayed" and change.pending is not None:
            waits_s, interval_s = now_s - change.pending.since_s, self.options.scale_down_interval_s
            text = (
                f"{counted(change.wanted, 'task')} instead of {self.tasks[widest]} would do for "
                f"{widest} since {duration(waits_s)}; a scale down waits for {duration(interval_s)}"
            )
        elif change.cause == "ineffective":
            text = (
                f"the last scale up of {widest} brought {change.gained_fraction:.0%} of its "
                f"promise: {count_executors(executors, 'stay')}"
            )
        elif change.cause == "right_size":
            text = f"{self.story}: {count_executors(executors, 'stay')}"
        else:
            return self._within_band(executors)
        return Reason(change.cause, text, self.evidence)

    def _within_band(self, executors: int) -> Reason:
        change, band = self.plan.changes[self.widest], self.loads[self.widest].band
        if change.outside:
            # Its tasks may change, but not by as much as an executor has.
            text = f"{self.story}: that takes the slots of {count_executors(executors)}"
            return Reason("right_size", text, self.evidence)
        low, high = band.scale_up_below_rps or 0.0, band.scale_down_above_rps or inf
        within = f"between {rate(low)} and {rate(high)}" if isfinite(high) else f"above {rate(low)}"
        text = f"{self.story}; {within} nothing is done"
        if change.cause == "scale_down" and change.pending is not None:
            text = (
                f"{counted(change.parallelism, 'task', 'are')} the most that {self.widest} needed "
                f"in {duration(self.options.scale_down_interval_s)}, and that was within its band"
            )
        return Reason("within_band", text, self.evidence)

    def expected_rps(self, tasks: int) -> float | None:
        """What the job as a whole can then take in: as much as its tightest vertex lets through."""
        arrival_rps, share = 0.0, inf
        for name, vertex in self.sight.vertices.items():
            load = self.loads[name]
            target_rps, capacity_rps = load.demand.target_rps, load.capacity_rps
            if target_rps is None or capacity_rps is None:
                return None
            if not vertex.inputs:
                arrival_rps += target_rps
            if target_rps > 0.0:
                share = min(share, capacity_rps / vertex.parallelism * tasks / target_rps)
        return arrival_rps * share if isfinite(share) else None
