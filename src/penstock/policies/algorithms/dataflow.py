"""A job as DS2 sees it: how fast each operator could be, and how many instances the load takes.

An operator that is busy for a fifth of the time could do five times as much: its *true rate* is
its input over its useful time. One walk from the sources, whose target is what arrives, gives the
rate that each operator has to process, and so the instances that it needs. For the fleet:

- *slot sharing* (Flink): each slot runs one instance of every operator, so the **largest** need
  counts, one slot per instance;
- *taking turns* (Spark's micro-batches): a stage has the whole fleet while it runs. Its busy
  fraction is its run time over slots x wall time, and the needs **add up**.
"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import ceil, inf, isinf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.errors import ModelError
from penstock.core.model import Decision, Fleet, OperatorSample, Reason, Snapshot, not_measured
from penstock.core.phrases import rate, resized
from penstock.policies.algorithms.measurements import hold

Sharing = Literal["auto", "max", "sum"]


class TrueRates(Struct, frozen=True, gc=False):
    """What an operator could process and emit if it worked all the time, all instances together."""

    name: str
    upstream: tuple[str, ...]
    instances: float
    processing_rps: float
    output_rps: float


class OperatorDemand(Struct, frozen=True, gc=False):
    """What an operator would have to process, and the instances that takes, unrounded."""

    target_rps: float
    instances: float


class OperatorDemands(Struct, frozen=True, gc=False):
    """A job's operators with what the present load asks of each."""

    operators: tuple[TrueRates, ...]
    demands: dict[str, OperatorDemand]
    arrival_rps: float
    takes_turns: bool
    cores_per_executor: int

    @property
    def executors(self) -> float:
        return self.fleet_of({name: demand.instances for name, demand in self.demands.items()})

    @property
    def slowest(self) -> str:
        return max(self.demands, key=lambda name: self.demands[name].instances)

    def fleet_of(self, instances: Mapping[str, float]) -> float:
        """The fleet on which these instances run: the sum in turns, the largest on shared slots."""
        if self.takes_turns:
            return sum(instances.values())
        return max(instances.values()) / self.cores_per_executor


def topological_order(upstream: Mapping[str, Sequence[str]]) -> list[str]:
    """The operators, each after all that feed it.

    >>> topological_order({"sink": ["map"], "map": ["source"], "source": []})
    ['source', 'map', 'sink']
    """
    for name, feeds in upstream.items():
        for lost in (feed for feed in feeds if feed not in upstream):
            raise ModelError(f"operator '{name}' reads from '{lost}', which is not in the dataflow")
    try:
        return list(TopologicalSorter(upstream).static_order())
    except CycleError as error:
        raise ModelError(f"the dataflow has a cycle: {' -> '.join(error.args[1])}") from None


def demands(
    operators: Sequence[TrueRates], sources_rps: Mapping[str, float]
) -> dict[str, OperatorDemand]:
    """One walk from the sources: what each operator has to do, and the instances that takes.

    ``target = sum of what its upstream emits``, ``instances = target / true rate per instance``,
    and it emits ``true output x instances / present instances``, unrounded, or rounding would add
    up along a path. An operator of unknown rate that has work to do needs infinitely many.

    >>> split = TrueRates("split", ("lines",), 2, processing_rps=250e3, output_rps=2500e3)
    >>> count = TrueRates("count", ("split",), 1, processing_rps=2e6, output_rps=0.0)
    >>> found = demands([split, count], {"lines": 500e3})
    >>> found["split"], found["count"]
    (OperatorDemand(target_rps=500000.0, instances=4.0),
     OperatorDemand(target_rps=5000000.0, instances=2.5))
    """
    by_name = {operator.name: operator for operator in operators}
    if len(by_name) < len(operators):
        raise ModelError("two operators of the dataflow bear the same name")
    emitted = dict(sources_rps)
    inner = {o.name: [feed for feed in o.upstream if feed not in emitted] for o in operators}
    found: dict[str, OperatorDemand] = {}
    for name in topological_order(inner):
        operator = by_name[name]
        target_rps = sum([emitted[feed] for feed in operator.upstream])
        if operator.processing_rps > 0.0:
            instances = target_rps / (operator.processing_rps / operator.instances)
            emitted[name] = operator.output_rps * instances / operator.instances
        else:
            instances = inf if target_rps > 0.0 else 0.0
            emitted[name] = 0.0
        found[name] = OperatorDemand(target_rps, instances)
    return found


def instances_of(operator: OperatorSample, fleet: Fleet, *, takes_turns: bool) -> int:
    """How many instances an operator runs as: its tasks, or all slots; in turns, all executors."""
    if takes_turns:
        return max(1, fleet.active)
    return max(1, operator.tasks or fleet.active * fleet.cores_per_executor)


def true_rates(
    window: Sequence[Snapshot], *, takes_turns: bool
) -> tuple[tuple[TrueRates, ...], tuple[str, ...]]:
    """True rates over a window, and the names of what was nowhere measured in it.

    Input is divided by useful *instance* time, summed over the window, so that a rescale inside
    it, a restart without any work, or a batch that spans two snapshots does not distort the rate.
    """
    latest = next((snapshot for snapshot in reversed(window) if snapshot.operators), None)
    if latest is None:
        return (), ("operators",)
    sums = _summed(window, takes_turns=takes_turns)
    feeds = {feed for operator in latest.operators for feed in operator.upstream}
    missing: list[str] = []
    rates: list[TrueRates] = []
    for operator in latest.operators:
        name = operator.name
        flow = sums.get(name, _WindowSums())
        if not flow.saw_busy:
            missing.append(f"input_rps or busy_fraction of {name}")
        elif name in feeds and not flow.saw_output:
            missing.append(f"output_rps of {name}")
        else:
            instances = instances_of(operator, latest.fleet, takes_turns=takes_turns)
            processing_rps = flow.taken / flow.useful * instances if flow.useful > 0.0 else 0.0
            output_rps = processing_rps * flow.given / flow.passed if flow.passed > 0.0 else 0.0
            counted = float(instances)
            rates.append(TrueRates(name, operator.upstream, counted, processing_rps, output_rps))
    return tuple(rates), tuple(missing)


class _WindowSums(Struct, gc=False):
    """One operator over a window."""

    taken: float = 0.0
    useful: float = 0.0  #: Instance time.
    passed: float = 0.0  #: Input, where output was measured too.
    given: float = 0.0  #: Output.
    saw_busy: bool = False
    saw_output: bool = False


def _summed(window: Sequence[Snapshot], *, takes_turns: bool) -> dict[str, _WindowSums]:
    sums: dict[str, _WindowSums] = {}
    for snapshot in window:
        for operator in snapshot.operators:
            if (input_rps := operator.input_rps) is None:
                continue
            flow = sums.setdefault(operator.name, _WindowSums())
            if operator.busy_fraction is not None:
                instances = instances_of(operator, snapshot.fleet, takes_turns=takes_turns)
                flow.saw_busy = True
                flow.taken += input_rps
                flow.useful += operator.busy_fraction * instances
            if operator.output_rps is not None:
                flow.saw_output = True
                flow.passed += input_rps
                flow.given += operator.output_rps
    return sums


def measure(
    snapshot: Snapshot, window: Sequence[Snapshot], sharing: Sharing = "auto"
) -> OperatorDemands | Decision:
    """The job as a dataflow under its present load, or the decision to hold with its reason.

    What arrives is divided among several sources in proportion to what each takes in.

    >>> from penstock.core.model import Fleet
    >>> now = Snapshot(0.0, Fleet(2, 2, 2), arrival_rps=900.0, operators=(
    ...     OperatorSample("read", input_rps=600.0, output_rps=600.0, busy_fraction=0.5),
    ...     OperatorSample("join", ("read",), input_rps=600.0, busy_fraction=1.0),
    ... ))
    >>> flow = measure(now, [now])
    >>> flow.executors, flow.slowest
    (3.0, 'join')
    """
    window = window or (snapshot,)
    holding = snapshot.fleet.target
    is_batched = snapshot.trigger_interval_s is not None
    takes_turns = is_batched if sharing == "auto" else sharing == "sum"
    arrivals = [s.arrival_rps for s in window if s.arrival_rps is not None]
    if snapshot.arrival_rps is None or not arrivals:
        return not_measured(holding, "arrival_rps")
    rates, missing = true_rates(window, takes_turns=takes_turns)
    if missing:
        return not_measured(holding, *missing)
    arrival_rps = sum(arrivals) / len(arrivals)
    rates, sources_rps = _with_sources(rates, window, arrival_rps)
    try:
        found = demands(rates, sources_rps)
    except ModelError as error:
        return hold(holding, "broken_dataflow", str(error))
    unknown = [f"true rate of {name}" for name, need in found.items() if isinf(need.instances)]
    if unknown:
        return not_measured(holding, *unknown)
    cores = snapshot.fleet.cores_per_executor
    return OperatorDemands(rates, found, arrival_rps, takes_turns, cores)


def sized(
    flow: OperatorDemands,
    fleet: int,
    *,
    overprovisioning: float,
    whole_instances: bool,
    least_shrink: int = 1,
) -> Decision:
    """The fleet that keeps up with the load and a fraction on top, as a decision."""
    needed = float(ceil(flow.executors)) if whole_instances else flow.executors
    target = max(1, with_margin(needed, 1.0 + overprovisioning))
    if fleet - least_shrink < target <= fleet:
        target, code = fleet, "right_size"
    else:
        code = "scale_up" if target > fleet else "scale_down"
    text = (
        f"{rate(flow.arrival_rps)} need {needed:.2f} executors, most for {flow.slowest}; "
        f"with {overprovisioning:.0%} on top: {resized(fleet, target)}"
    )
    evidence = {"mean_arrival_rps": flow.arrival_rps, "needed_executors": needed}
    expected_rps = flow.arrival_rps * target / needed if target != fleet and needed > 0.0 else None
    return Decision.of(target, Reason(code, text, evidence), expected_rps=expected_rps)


def _with_sources(
    rates: tuple[TrueRates, ...], window: Sequence[Snapshot], arrival_rps: float
) -> tuple[tuple[TrueRates, ...], dict[str, float]]:
    """Put a topic in front of each operator that reads from none, with its share of arrivals."""
    taken = {rate.name: 0.0 for rate in rates if not rate.upstream}
    for snapshot in window:
        for operator in snapshot.operators:
            if operator.name in taken and operator.input_rps is not None:
                taken[operator.name] += operator.input_rps
    total = sum(taken.values())
    sources_rps = {}
    for name, rps in taken.items():
        share = rps / total if total > 0.0 else 1.0 / len(taken)
        sources_rps[f"topic of {name}"] = arrival_rps * share
    fed = (replace(one, upstream=one.upstream or (f"topic of {one.name}",)) for one in rates)
    return tuple(fed), sources_rps


def with_margin(instances: float, factor: float) -> int:
    """Instances times a safety factor, in whole instances: 4 with 1.2 are 5."""
    return ceil(instances * factor)
