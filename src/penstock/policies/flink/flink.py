"""The autoscaler of Apache Flink's Kubernetes operator, on executors."""

from dataclasses import dataclass
from itertools import chain
from math import inf, isinf
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import duration, resized
from penstock.policies.algorithms.measurements import hold
from penstock.policies.flink import history, metrics_window
from penstock.policies.flink.capacity import Collected, collect
from penstock.policies.flink.evaluation import Options, Seconds, VertexLoad, evaluate
from penstock.policies.flink.outlook import JobEvaluation
from penstock.policies.flink.vertex import decide_job


class Scalings(Struct, frozen=True, tag=True, omit_defaults=True):
    """What the autoscaler remembers: the past of each vertex, scale downs that wait, restarts."""

    past: dict[str, tuple[history.Scaling, ...]] = {}
    pending: dict[str, history.Pending] = {}
    restarts: tuple[history.Restart, ...] = ()
    proposed: dict[str, history.Scaling] = {}  #: By the last turn; past only once it was done.
    executors: int = 0
    proposed_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flink(Options):
    """Capacity against demand, vertex by vertex, with a band in which nothing is done.

    The rule: over a full window of a settled job, ``capacity = input / busy fraction`` and
    ``demand = input + growth of the backlog`` at the sources, carried on downstream by measured
    ratios. ``required(u) = backlog / catch_up + demand x restart / catch_up + demand / u``.
    If any vertex has ``capacity < required(u_max)`` (without restart) or ``capacity >
    required(u_min)``, each vertex gets ``ceil(p x required(u_target) / capacity)`` tasks, and the
    job as many executors as its widest vertex needs. Growing happens at once; shrinking after
    `scale_down_interval_s`, to the largest size needed in that time.
    """

    window_s: Seconds = 900.0
    stabilization_s: Seconds = 300.0
    alignment: Literal["balanced", "evenly_spread", "off"] = "balanced"
    history_count: Annotated[int, Meta(ge=1, le=100)] = 3
    history_age_s: Seconds = 86_400.0
    period_s: Annotated[float, Meta(gt=0)] = 60.0

    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        current = snapshot.fleet.target
        memory = self._with_outcome(knowledge.recall(Scalings), snapshot, knowledge)
        lag_counts = metrics_window.reports_lag(chain((snapshot,), reversed(knowledge.history)))
        if unknown := metrics_window.missing(snapshot, lag_counts=lag_counts):
            return not_measured(current, *unknown, memory=memory)
        if snapshot.fleet.active == 0:
            why = "none is active yet, so there is nothing to measure"
            return hold(current, "no_executors", why, memory=memory)

        # A rescale that lies ahead was dated by a clock that has been set back since.
        rescaled_at_s = knowledge.rescales[-1].at_s if knowledge.rescales else -inf
        if rescaled_at_s > snapshot.at_s:
            rescaled_at_s = -inf
        horizon_s = self.stabilization_s + self.window_s + self.period_s
        past = reversed(knowledge.history)
        seen, running_at_s = metrics_window.unchanged(snapshot, past, rescaled_at_s, horizon_s)
        window = collect(
            [earlier.at_s for earlier in seen[:-1]],
            snapshot.at_s,
            running_at_s=running_at_s,
            stabilization_s=self.stabilization_s,
            window_s=self.window_s,
        )
        if not window.is_full or len(window.at_s) < 2:
            reason = self._too_early(snapshot, window, running_at_s)
            return Decision.of(current, reason, memory=memory)

        seen = seen[len(seen) - len(window.at_s) :]
        sight = metrics_window.vertices_of(seen, self, lag_counts=lag_counts)
        restart_time_s = history.restart_s((restart.took_s for restart in memory.restarts), self)
        loads = evaluate(sight.vertices, sight.samples, self, restart_s=restart_time_s)
        plan = decide_job(
            sight.vertices,
            loads,
            self,
            restart_s=restart_time_s,
            now_s=snapshot.at_s,
            past=memory.past,
            pending=memory.pending,
            heap_fraction=metrics_window.heap_fraction(seen) if self.heap_threshold < 1.0 else None,
        )
        if plan.under_memory_pressure:
            text = f"memory is above {self.heap_threshold:.0%} of an executor: nothing is scaled"
            return Decision.of(current, Reason("memory_pressure", text), memory=memory)
        outlook = JobEvaluation(sight, loads, plan, self, restart_time_s)
        return self._conclude(snapshot, knowledge, outlook, memory)

    def _too_early(self, snapshot: Snapshot, window: Collected, running_at_s: float) -> Reason:
        runs_s = snapshot.at_s - running_at_s
        if runs_s < self.stabilization_s:
            text = f"the fleet is unchanged for {duration(runs_s)}; its measurements count "
            text += f"after {duration(self.stabilization_s)}"
            return Reason("stabilizing", text, {"runs_s": runs_s})
        span_s = snapshot.at_s - window.at_s[0]
        window_s = duration(self.window_s)
        text = f"measurements of {duration(span_s)} do not fill a window of {window_s} yet"
        return Reason("window_not_full", text, {"span_s": span_s})

    def _conclude(
        self, snapshot: Snapshot, knowledge: Knowledge, outlook: JobEvaluation, memory: Scalings
    ) -> Decision:
        """The widest vertex decides about the fleet, and explains it."""
        current, sight, plan = snapshot.fleet.target, outlook.sight, outlook.plan
        widest = outlook.widest
        memory = structs.replace(memory, pending=plan.pending)
        if plan.changes[widest].cause == "unknown":
            return not_measured(current, f"load of {widest} over the window", memory=memory)
        executors = sight.executors(outlook.tasks[widest])
        if executors == current or not outlook.is_called_for:
            reason = outlook.reason_to_hold(snapshot.at_s, current)
            return Decision.of(current, reason, memory=memory)
        tasks = round(executors * sight.slots_per_executor)
        memory = structs.replace(
            memory,
            proposed={
                name: _scaling(snapshot.at_s, vertex.parallelism, tasks, outlook.loads[name])
                for name, vertex in sight.vertices.items()
            },
            executors=executors,
            proposed_at_s=knowledge.now_s,
        )
        text = f"{outlook.story}: {resized(current, executors)}"
        code = "scale_up" if executors > current else "scale_down"
        if executors < current and self.scale_down_interval_s:
            text += f", the most of the last {duration(self.scale_down_interval_s)}"
        reason, expected_rps = Reason(code, text, outlook.evidence), outlook.expected_rps(tasks)
        return Decision.of(executors, reason, expected_rps=expected_rps, memory=memory)

    def _with_outcome(self, memory: Scalings, snapshot: Snapshot, knowledge: Knowledge) -> Scalings:
        """What the last proposal came to, and how long the last rescale took."""
        now_s = snapshot.at_s
        past, pending, restarts = memory.past, memory.pending, memory.restarts
        rescale = knowledge.rescales[-1] if knowledge.rescales else None
        if memory.proposed and rescale and rescale.at_s == memory.proposed_at_s:
            pending = {}
            restarts = (*restarts, history.Restart(memory.proposed_at_s))
            # A target that a guard overrode promises nothing.
            if rescale.after == memory.executors:
                past = {name: (*past.get(name, ()), new) for name, new in memory.proposed.items()}
        if rescale and restarts and restarts[-1].took_s is None:
            at_s = restarts[-1].at_s
            took_s = history.measured_restart_s(
                at_s, now_s, [rescale.after], [snapshot.fleet.active]
            )
            if took_s is not None and took_s > 0.0:
                restarts = (*restarts[:-1], history.Restart(at_s, took_s))
        keep_s, keep_count = self.history_age_s, self.history_count
        return Scalings(
            {
                name: kept
                for name, scalings in past.items()
                if (kept := history.trimmed(scalings, now_s, keep_s=keep_s, keep_count=keep_count))
            },
            # A clock that was set back would hold up a scale down until it has caught up.
            {name: waits for name, waits in pending.items() if waits.since_s <= now_s},
            history.trimmed(
                restarts, now_s, keep_s=keep_s, keep_count=keep_count, keep_latest=True
            ),
        )


def _scaling(at_s: float, before: int, after: int, load: VertexLoad) -> history.Scaling:
    """A scaling to remember; a capacity without limit promises nothing."""
    can_rps = load.capacity_rps
    if can_rps is None or isinf(can_rps):
        return history.Scaling(at_s, before, after)
    return history.Scaling(at_s, before, after, can_rps, can_rps / before * after)
