"""A dataflow of operators on shared slots, and how fast a fleet of workers can run it.

Every worker runs one instance of each operator on its slot. Operators that are not keyed get an
equal share of the records on each worker; keyed ones get what the keys give them, so the worker
with the hottest key gets more. The job runs at the pace of the worker that is at its limit
first, because all others wait for it through backpressure.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError, unknown


class Operator(Struct, frozen=True, forbid_unknown_fields=True):
    """One operator of a dataflow; docs/simulated-jobs.md says what each field means."""

    name: str
    service_s: Annotated[float, Meta(gt=0)]
    upstream: tuple[str, ...] = ()
    selectivity: Annotated[float, Meta(ge=0)] = 1.0
    keyed: bool = False
    service_cv2: Annotated[float, Meta(ge=0)] = 1.0


class Worker(Struct, frozen=True, gc=False):
    """One worker inside a `Regime`, when the job runs at its capacity."""

    utilisation: float  #: Of its own limit: 1 for the slowest worker.
    cpu_share: float  #: At its limit; below 1 if one operator is full while cores are left.


class Regime(Struct, frozen=True):
    """What a given set of workers can do, as long as nothing changes."""

    capacity_rps: float
    workers: tuple[Worker, ...]
    busy: tuple[float, ...]  #: Of each operator: the mean over its instances at capacity.
    service_s: tuple[float, ...]  #: Of each operator for a record, others on the core included.
    bottleneck: int  #: The operator that is full first.
    efficiency: float = 1.0  #: What contention leaves of a worker's speed.


#: Stands for no work where one divides by it: all records may sit on another worker's key.
_NO_WORK_S = 1e-100

IDLE = Regime(0.0, (), (), (), 0)


class _Load(NamedTuple):
    """The work of one worker per record that arrives at the job."""

    need_s: float
    cpu_share: float  #: At its limit.
    busy: list[float]  #: Of each of its operators, at its limit.


class Dataflow:
    """The operators in the order of the flow, with what one record at the source means for each.

    >>> flow = Dataflow([
    ...     Operator("source", 20e-6),
    ...     Operator("window", 80e-6, upstream=("source",), selectivity=0.01, keyed=True),
    ... ])
    >>> flow.inputs, flow.costs_s
    ([1.0, 1.0], [2e-05, 8e-05])
    >>> round(flow.regime([1.0, 1.0]).capacity_rps)
    20000
    >>> round(flow.regime([1.0, 1.0], hot_fraction=0.5).capacity_rps)  # 10 + 60 us on one of them
    14286
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        if not operators:
            raise ConfigError("a dataflow needs at least one operator")
        self.operators = tuple(operators)
        self.index = {operator.name: i for i, operator in enumerate(operators)}
        if len(self.index) < len(self.operators):
            raise ConfigError("two operators of a dataflow bear the same name")
        sources = sum(not operator.upstream for operator in operators)
        outputs: dict[str, float] = {}
        #: Records that come into each operator per record that arrives at the job.
        self.inputs: list[float] = []
        #: Seconds of one core that each operator spends per record that arrives at the job.
        self.costs_s: list[float] = []
        #: Which operators feed each one, directly or not.
        self.ancestors: list[frozenset[int]] = []
        paths_s: list[float] = []
        for operator in operators:
            feeders = [self._feeder(operator, name, outputs) for name in operator.upstream]
            taken = sum(outputs[name] for name in operator.upstream) if feeders else 1.0 / sources
            outputs[operator.name] = taken * operator.selectivity
            self.inputs.append(taken)
            above = [self.ancestors[feeder] | {feeder} for feeder in feeders]
            self.ancestors.append(frozenset().union(*above))
            self.costs_s.append(taken * operator.service_s)
            longest_s = max((paths_s[feeder] for feeder in feeders), default=0.0)
            paths_s.append(operator.service_s + longest_s)
        self.path_s = max(paths_s)  #: Service times along the longest way through.

    def _feeder(self, operator: Operator, name: str, known: dict[str, float]) -> int:
        if name in known:
            return self.index[name]
        if name in self.index:
            raise ConfigError(f"operator '{operator.name}' is listed before its upstream '{name}'")
        raise unknown("operator", name, self.index, where=f"upstream of '{operator.name}'")

    def regime(
        self,
        speeds: Sequence[float],
        *,
        cores: int = 1,
        contention: float = 0.0,
        late_contention: float = 0.0,
        hot_fraction: float = 0.0,
        slowdown: float = 1.0,
    ) -> Regime:
        """What workers of these speeds, of which 1 is nominal, can do together.

        The `cores` of a worker are shared by its operators. Each of n workers slows down by 1 +
        contention (n - 1). What `late_contention` adds to that is time in which they work: it takes
        capacity, and gauges show it whole. The hottest key, with `hot_fraction` of the input of
        keyed ones, sits on the worker in the middle. `slowdown` is what is left of the speed of all
        of them.
        """
        count = len(speeds)
        if not count:
            return IDLE
        even, hot = 1.0 / count, count // 2
        cool = self._load(even, (1.0 - hot_fraction) * even, cores)
        heated = self._load(even, (1.0 - hot_fraction) * even + hot_fraction, cores)
        efficiency = 1.0 / (1.0 + contention * (count - 1))
        pace = slowdown * (1.0 / (1.0 + (contention + late_contention) * (count - 1)))
        limits = [pace * speed / cool.need_s for speed in speeds]
        limits[hot] = pace * speeds[hot] / heated.need_s
        capacity_rps = min(limits)
        if capacity_rps <= 0.0:
            return IDLE
        used = [capacity_rps / limit for limit in limits]
        workers = [Worker(one, cool.cpu_share) for one in used]
        workers[hot] = Worker(used[hot], heated.cpu_share)
        # The mean over all instances: those on the hot worker, and those on all others.
        cool_part, hot_part = (sum(used) - used[hot]) * even, used[hot] * even
        both = zip(cool.busy, heated.busy, strict=True)
        busy = tuple([cool_part * one + hot_part * other for one, other in both])
        service_s = tuple(
            one * count / (capacity_rps * taken) if taken > 0.0 else operator.service_s
            for one, taken, operator in zip(busy, self.inputs, self.operators, strict=True)
        )
        fullest = busy.index(max(busy))
        return Regime(capacity_rps, tuple(workers), busy, service_s, fullest, efficiency)

    def _load(self, even: float, keyed: float, cores: int) -> _Load:
        """What one worker does per record that arrives at the job, given its share of records."""
        each_s = [
            cost_s * (keyed if operator.keyed else even)
            for cost_s, operator in zip(self.costs_s, self.operators, strict=True)
        ]
        fullest_s, cpu_s = max(_NO_WORK_S, *each_s), sum(each_s) / cores
        need_s = max(fullest_s, cpu_s)
        # An instance that shares its core waits for the others: what counts as its time is its
        # part of the fullest instance's time, which is full when the worker is.
        return _Load(need_s, cpu_s / need_s, [one_s / fullest_s for one_s in each_s])
