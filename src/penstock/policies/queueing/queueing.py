"""Queueing theory: the smallest job whose response time stays within what the user asks for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isinf
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot
from penstock.core.phrases import counted, resized
from penstock.policies.algorithms.dataflow import (
    OperatorDemands,
    Sharing,
    measure,
    topological_order,
)
from penstock.policies.algorithms.measurements import excess_delay_s
from penstock.policies.queueing.formulas import (
    BatchStation,
    Station,
    fewest_servers,
    response_time_s,
)

#: What a batch costs besides its records changes little: it is a mean over this many windows.
FIXED_COST_WINDOWS = 10


class QueueingMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """The planned instances of each operator; the fleet is what they need together."""

    instances: dict[str, int] = {}


class Path(Struct, frozen=True, gc=False):
    """A way from a source to a sink, how long a record takes along it, and how long it may."""

    operators: tuple[str, ...]
    response_s: float
    work_s: float
    goal_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Queueing:
    """Each operator a GI/G/k queue, sized so that records get through in time.

    The rule: ``T = 1/mu + Tq``, ``Tq = (ca^2 + cs^2) / 2k x Pk / (mu (1 - rho))`` with ``Pk`` by
    Erlang C. With ``goal = operator``: for each operator the smallest ``k`` with
    ``T <= max_response_s``. With ``goal = path``: ``T`` summed along each way from a source to a
    sink; above `max_response_s` its slowest operator gets one instance more, below
    ``relax_fraction x max_response_s`` its fastest with more than one gets one fewer. The fleet
    is the largest ``k``, because operators share slots.

    Where stages take turns (Spark) a record also waits for the trigger and for its whole batch:
    ``T = P/2 + fixed + rho P + Tq`` with ``P`` the time between batches, ``rho`` the part of the
    fleet's time that its records take, ``fixed`` what a batch takes besides, and ``Tq`` that of a
    single server, the fleet. Goal ``operator`` takes the smallest fleet with
    ``T <= max_response_s``, goal ``path`` one more or one fewer.
    """

    max_response_s: Annotated[float, Meta(gt=0)] = 1.0
    goal: Literal["operator", "path"] = "path"
    relax_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    assumed_cv2: Annotated[float, Meta(ge=0)] = 1.0
    sharing: Sharing = "auto"
    window_s: Annotated[float, Meta(ge=0)] = 30.0
    period_s: Annotated[float, Meta(gt=0)] = 30.0

    default_limits: ClassVar[Limits] = Limits(max_executors=15)
    wakes_on_surge: ClassVar[bool] = False

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = knowledge.recall(QueueingMemory)
        flow = measure(snapshot, knowledge.window(self.window_s), self.sharing)
        if isinstance(flow, Decision):
            return Decision.of(flow.target_executors, *flow.reasons, memory=memory)
        if flow.takes_turns:
            past = knowledge.window(FIXED_COST_WINDOWS * self.window_s)
            station = _batch_station(flow, snapshot, past, self)
            return self._by_batch(flow, station, snapshot)
        stations = _stations(flow, snapshot, self.assumed_cv2)
        if self.goal == "operator":
            return self._by_operator(flow, stations, snapshot)
        return self._by_path(flow, stations, snapshot, memory)

    def _by_operator(
        self, flow: OperatorDemands, stations: Mapping[str, Station], snapshot: Snapshot
    ) -> Decision:
        instances = dict.fromkeys(flow.demands, 1)
        for name, station in stations.items():
            goal_s = _reachable_s(self.max_response_s, 1.0 / station.service_rps)
            instances[name] = fewest_servers(station, goal_s)
        largest, count = max(instances.items(), key=lambda pair: pair[1])
        size = counted(count, "instance")
        goal = f"{largest} answers within {self.max_response_s:g} s with {size}:"
        return _resized(flow, _fleet_of(flow, instances), goal, snapshot.fleet.target)

    def _by_path(
        self,
        flow: OperatorDemands,
        stations: Mapping[str, Station],
        snapshot: Snapshot,
        memory: QueueingMemory,
    ) -> Decision:
        # As remembered, but never beyond what the fleet gives now.
        slots = max(1, snapshot.fleet.target * flow.cores_per_executor)
        planned = {name: min(slots, memory.instances.get(name, slots)) for name in flow.demands}
        times_s = dict.fromkeys(flow.demands, 0.0)
        times_s |= {name: response_time_s(s, planned[name]) for name, s in stations.items()}
        work_s = {name: 1.0 / station.service_rps for name, station in stations.items()}
        paths = _paths(flow, times_s, work_s, self.max_response_s)
        more = set()
        # What was asked for last time and not granted would only pile up.
        if ceil(flow.fleet_of(planned)) <= snapshot.fleet.target:
            for path in paths:
                if path.response_s > path.goal_s:
                    more.add(max(path.operators, key=lambda name: times_s[name]))
        relaxed = [path for path in paths if path.response_s < self._relaxed_s(path)]
        spared = {name for path in paths if path not in relaxed for name in path.operators}
        given_back = [_given_back(path, planned, times_s, stations, spared) for path in relaxed]
        fewer = {name for name in given_back if name is not None}
        instances = {n: k + (n in more) - (n in fewer) for n, k in planned.items()}
        slowest = max(paths, key=lambda path: path.response_s / path.goal_s)
        text = _story(slowest, more, fewer)
        target, memory = _fleet_of(flow, instances), QueueingMemory(instances)
        return _resized(flow, target, text, snapshot.fleet.target, memory)

    def _by_batch(
        self, flow: OperatorDemands, station: BatchStation, snapshot: Snapshot
    ) -> Decision:
        """The fleet on which a record is committed in time."""
        fleet, shortest_s = snapshot.fleet.target, station.shortest_s
        goal_s = _reachable_s(self.max_response_s, shortest_s)
        now_s = station.response_time_s(fleet)
        if self.goal == "operator":
            target = station.fewest_executors(goal_s)
        elif now_s > goal_s:
            target = fleet + 1
        else:
            fewer = max(1, fleet - 1)
            # Trigger and fixed cost are there with any fleet: alpha is of what remains.
            is_relaxed = now_s < shortest_s + self.relax_fraction * (goal_s - shortest_s)
            target = fewer if is_relaxed and station.response_time_s(fewer) <= goal_s else fleet
        story = _batch_story(station, now_s, goal_s, fleet)
        late_s = excess_delay_s(snapshot) or 0.0
        if target < fleet and late_s > goal_s:
            story = f"{story[:-1]}, but records that wait now are {late_s:.3g} s late:"
            target = fleet
        return _resized(flow, target, story, fleet)

    def _relaxed_s(self, path: Path) -> float:
        """Below this instances are given back; the mere work is not in their power to shorten."""
        part, goal_s, work_s = self.relax_fraction, path.goal_s, path.work_s
        return part * goal_s if part * goal_s > work_s else work_s + part * (goal_s - work_s)


def _stations(flow: OperatorDemands, snapshot: Snapshot, assumed_cv2: float) -> dict[str, Station]:
    """The operators that have work to do, as queues whose servers are slots."""
    samples = {sample.name: sample for sample in snapshot.operators}
    stations = {}
    for operator in flow.operators:
        arrival_rps = flow.demands[operator.name].target_rps
        if arrival_rps == 0.0:
            continue
        sample = samples.get(operator.name)
        service_rps = operator.processing_rps / operator.instances
        if sample is not None and sample.service_time_s:
            service_rps = 1.0 / sample.service_time_s
        measured = (None, None) if sample is None else (sample.arrival_cv2, sample.service_cv2)
        cv2s = [assumed_cv2 if cv2 is None else cv2 for cv2 in measured]
        stations[operator.name] = Station(arrival_rps, service_rps, *cv2s)
    return stations


def _batch_station(
    flow: OperatorDemands, snapshot: Snapshot, past: Sequence[Snapshot], policy: Queueing
) -> BatchStation:
    """The job as a server of batches, with the variation of records where it is measured."""
    arrivals = [o.arrival_cv2 for o in snapshot.operators if o.arrival_cv2 is not None]
    served, total = 0.0, 0.0
    for operator in snapshot.operators:
        demand = flow.demands.get(operator.name)
        if operator.service_cv2 is not None and demand is not None:
            served += operator.service_cv2 * demand.instances
            total += demand.instances
    return BatchStation(
        flow.arrival_rps,
        flow.executors,
        snapshot.trigger_interval_s or 0.0,
        _fixed_s(past),
        max(arrivals, default=policy.assumed_cv2),
        served / total if total > 0.0 else policy.assumed_cv2,
    )


def _fixed_s(past: Sequence[Snapshot]) -> float:
    """What a batch takes beyond the time that its tasks keep all slots busy; 0 if not known."""
    busy_s = took_s = 0.0
    batches = 0
    for before, snapshot in pairwise(past):
        busy = sum(operator.busy_fraction or 0.0 for operator in snapshot.operators)
        busy_s += busy * (snapshot.at_s - before.at_s)
        took_s += sum(batch.duration_s for batch in snapshot.batches)
        batches += len(snapshot.batches)
    return max(0.0, took_s - busy_s) / batches if batches else 0.0


def _paths(
    flow: OperatorDemands, times_s: Mapping[str, float], work_s: Mapping[str, float], goal_s: float
) -> list[Path]:
    """For each sink the slowest way to it from a source: one pass, however many ways there are."""
    upstream = {o.name: [u for u in o.upstream if u in flow.demands] for o in flow.operators}
    slowest: dict[str, Path] = {}
    sinks = set(upstream)
    for name in topological_order(upstream):
        sinks.difference_update(upstream[name])
        before = max(
            (slowest[feed] for feed in upstream[name]),
            key=lambda path: path.response_s,
            default=Path((), 0.0, 0.0),
        )
        slowest[name] = Path(
            (*before.operators, name),
            before.response_s + times_s[name],
            before.work_s + work_s.get(name, 0.0),
        )
    return [
        Path(path.operators, path.response_s, path.work_s, _reachable_s(goal_s, path.work_s))
        for name, path in slowest.items()
        if name in sinks
    ]


def _reachable_s(goal_s: float, work_s: float) -> float:
    """The goal, or, if it is below the mere work, to wait no longer than that takes."""
    return goal_s if goal_s > work_s else 2.0 * work_s


def _given_back(
    path: Path,
    planned: Mapping[str, int],
    times_s: Mapping[str, float],
    stations: Mapping[str, Station],
    spared: Collection[str],
) -> str | None:
    """The fastest operator of a relaxed path that can do with one fewer within the goal."""
    for name in sorted(path.operators, key=lambda name: times_s[name]):
        if planned[name] == 1 or name in spared:
            continue
        if name not in stations:
            return name
        after_s = response_time_s(stations[name], planned[name] - 1)
        if path.response_s - times_s[name] + after_s <= path.goal_s:
            return name
    return None


def _story(path: Path, more: set[str], fewer: set[str]) -> str:
    names = path.operators
    way = " > ".join(names if len(names) <= 4 else (names[0], "...", names[-1]))
    late = f"takes {path.response_s:.3g} s, more than {path.goal_s:g} s"
    if isinf(path.response_s):
        late = "cannot keep up"
    if more:
        return f"{way} {late}: one more for {', '.join(sorted(more))},"
    if path.response_s > path.goal_s:
        return f"{way} {late}, and the last recommendation was not carried out:"
    taken = f"{way} takes {path.response_s:.3g} s of {path.goal_s:g} s:"
    return f"{taken} one fewer for {', '.join(sorted(fewer))}," if fewer else taken


def _batch_story(station: BatchStation, response_s: float, goal_s: float, executors: int) -> str:
    if isinf(response_s):
        return "the fleet cannot keep up:"
    rho = station.work_executors / executors
    period_s = max(station.trigger_s, station.fixed_s / (1.0 - rho))
    batch_s = station.fixed_s + rho * period_s
    before = "for the trigger" if period_s == station.trigger_s else "for the batch before"
    waits = f"a record waits {period_s / 2.0:.3g} s {before} and {batch_s:.3g} s for its batch"
    if response_s > goal_s:
        return f"{waits}, {response_s:.3g} s in all, more than {goal_s:.3g} s:"
    return f"{waits}, {response_s:.3g} s in all, of {goal_s:.3g} s:"


def _fleet_of(flow: OperatorDemands, instances: Mapping[str, int]) -> int:
    return max(1, ceil(flow.fleet_of(instances)))


def _resized(
    flow: OperatorDemands, target: int, story: str, fleet: int, memory: QueueingMemory | None = None
) -> Decision:
    needed = flow.executors
    evidence = {"mean_arrival_rps": flow.arrival_rps, "stable_executors": needed}
    code = "right_size" if target == fleet else "scale_up" if target > fleet else "scale_down"
    expected_rps = flow.arrival_rps * target / needed if target != fleet and needed > 0 else None
    reason = Reason(code, f"{story} {resized(fleet, target)}", evidence)
    return Decision.of(target, reason, expected_rps=expected_rps, memory=memory)
