"""A simulated job of slow records: every record is followed, from queue to queue.

Where a record takes tenths of a second, how long records wait depends on chance. Each operator is a
queue with one server per executor; records arrive one by one at random and are served in order.
Executors join as they come and leave after the record in hand: nothing stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError, unknown
from penstock.core.model import ExecutorSample, Fleet, OperatorSample, Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.dataflow import Dataflow, Operator
from penstock.simulation.engines.engine import Curve, Engine, Outcome, Rates
from penstock.simulation.engines.fleet import Roster, Startup
from penstock.simulation.faults import Faults


class RecordJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job whose records are slow enough to follow each of them.

    `operators` are the dataflow, sources first: each hands every record on to all that read from
    it, after a gamma distributed time with its `service_cv2`. A record is answered at the end of
    `answer`. `startup` is from the request of an executor until it serves.
    """

    engine_name: ClassVar[str] = "records"

    operators: Annotated[tuple[Operator, ...], Meta(min_length=1)]
    answer: str
    startup: Startup = Startup(0.5, 2.0)

    def __post_init__(self) -> None:
        flow = Dataflow(self.operators)
        if self.answer not in flow.index:
            raise unknown("operator", self.answer, flow.index, where="answer")
        if any(operator.selectivity != 1.0 for operator in self.operators):
            raise ConfigError("operators of a record job hand on each record once: selectivity 1")

    def capacity_rps(self, executors: int) -> float:
        """The rate at which the slowest operator is busy all the time.

        >>> job = RecordJob(operators=(Operator("recognise", 0.4),), answer="recognise")
        >>> job.capacity_rps(3)
        7.5
        """
        return executors / max(operator.service_s for operator in self.operators)

    def start(
        self, rates_rps: Rates, *, executors: int, seed: int, faults: Faults = ()
    ) -> RecordRun:
        """A run of Poisson arrivals with one mean rate per second."""
        return RecordRun(self, rates_rps, executors=executors, seed=seed, faults=faults)


class _Station:
    """One operator: who waits, when its servers are free, and what was counted since a read."""

    def __init__(self, operator: Operator, servers: int) -> None:
        self.operator = operator
        self.readers: list[_Station] = []
        #: Instants of arrival here and at the job, earliest here first.
        self.queue: list[tuple[float, float]] = []
        self.free_s = [0.0] * servers
        self.last_arrival_s = 0.0
        self.forget()

    def forget(self) -> None:
        self.served = 0
        self.busy_s = self.service_squares = self.gap_total = self.gap_squares = 0.0

    def resize(self, servers: int, now_s: float) -> None:
        """More servers are free at once; of those too many, the first to be free goes."""
        while len(self.free_s) < servers:
            heappush(self.free_s, now_s)
        while len(self.free_s) > servers:
            heappop(self.free_s)

    def serve(self, until_s: float, rng: Random) -> list[tuple[float, float]]:
        """Begin all work that can begin by then; when each record is done, and when it came."""
        done: list[tuple[float, float]] = []
        queue, free_s, operator = self.queue, self.free_s, self.operator
        shape = 1.0 / operator.service_cv2 if operator.service_cv2 > 0.0 else 0.0
        while queue and free_s and queue[0][0] <= until_s and free_s[0] <= until_s:
            here_s, born_s = heappop(queue)
            begin_s = max(here_s, heappop(free_s))
            service_s = operator.service_s
            if shape:
                service_s = rng.gammavariate(shape, service_s / shape)
            heappush(free_s, begin_s + service_s)
            gap_s = here_s - self.last_arrival_s
            self.last_arrival_s = here_s
            self.gap_total += gap_s
            self.gap_squares += gap_s * gap_s
            self.served += 1
            self.busy_s += service_s
            self.service_squares += service_s * service_s
            done.append((begin_s + service_s, born_s))
        return done

    def sample(self, length_s: float, now_s: float) -> OperatorSample:
        servers = max(1, len(self.free_s))
        rps = self.served / length_s
        # Work that was begun and is not done yet belongs to the time after now.
        ahead_s = sum(max(0.0, free_s - now_s) for free_s in self.free_s)
        busy = min(1.0, max(0.0, (self.busy_s - ahead_s) / (servers * length_s)))
        service_s = self.busy_s / self.served if self.served else None
        waiting = float(sum(here_s <= now_s for here_s, _ in self.queue))
        flow = (rps, rps, busy, 0.0, 1.0 - busy, waiting)
        service_cv2 = _cv2(self.served, self.busy_s, self.service_squares)
        arrival_cv2 = _cv2(self.served, self.gap_total, self.gap_squares)
        name, upstream = self.operator.name, self.operator.upstream
        return OperatorSample(
            name, upstream, *flow, service_s, service_cv2, arrival_cv2, tasks=servers
        )


class RecordRun(InstantActuator, Engine):
    """One run of a `RecordJob`. `responses_s` are how long each answered record took."""

    def __init__(
        self, job: RecordJob, rates_rps: Rates, *, executors: int, seed: int, faults: Faults
    ) -> None:
        self._job = job
        self._rng = Random(seed)
        self._end_s = float(len(rates_rps))
        self._arrivals_s = poisson_instants(rates_rps, Random(seed + 1))
        self._arrived = 0
        self._roster = Roster(executors, rng=self._rng, startup=job.startup, faults=faults)
        self._stations = {one.name: _Station(one, executors) for one in job.operators}
        for station in self._stations.values():
            for name in station.operator.upstream:
                self._stations[name].readers.append(station)
        self._sources = [s for s in self._stations.values() if not s.operator.upstream]
        self._now_s = self._read_at_s = 0.0
        self._seen = 0
        self.responses_s: list[float] = []
        self._answers_s: list[float] = []
        self._last_read: tuple[OperatorSample, ...] = ()
        self._rates: tuple[float | None, float | None] = (None, None)

    def read(self, now_s: float) -> Snapshot:
        """Run on to `now_s` and report what the functions' own metrics would show."""
        self._advance(now_s)
        now_s = self._now_s
        length_s = now_s - self._read_at_s
        if length_s > 0.0:
            answer = self._stations[self._job.answer]
            self._rates = ((self._arrived - self._seen) / length_s, answer.served / length_s)
            self._last_read = tuple(
                [station.sample(length_s, now_s) for station in self._stations.values()]
            )
            for station in self._stations.values():
                station.forget()
            self._read_at_s, self._seen = now_s, self._arrived
        ready = self._roster.ready
        waiting = sum(sample.backlog_records or 0.0 for sample in self._last_read)
        oldest_s = min((s.queue[0][1] for s in self._stations.values() if s.queue), default=now_s)
        return Snapshot(
            now_s,
            Fleet(self._roster.target, len(ready), len(ready)),
            arrival_rps=self._rates[0],
            throughput_rps=self._rates[1],
            backlog_records=waiting if self._last_read else None,
            delay_s=max(0.0, now_s - oldest_s),
            latency_s=self.responses_s[-1] if self.responses_s else None,
            executors=tuple([ExecutorSample(one.id, one.ready_at_s) for one in ready]),
            operators=self._last_read,
        )

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for a fleet of that size: fewer leave now, more serve when they are there."""
        self._advance(now_s)
        target = max(0, target_executors)
        if not self._roster.ask(target, self._now_s):
            return Receipt(accepted=True, text=f"{target} executors were asked for already")
        self._roster.release(self._now_s)
        self._resize()
        return Receipt(accepted=True, text=f"asked for {target} executors")

    def finish(self) -> Outcome:
        """Run on to the end of the rates; the curves are of arrivals and of answers."""
        self._advance(self._end_s)
        end_s, roster = self._end_s, self._roster
        arrivals = _staircase(self._arrivals_s[: self._arrived], end_s)
        answers = _staircase(sorted(at_s for at_s in self._answers_s if at_s <= end_s), end_s)
        return Outcome(end_s, arrivals, answers, roster.paid, roster.targets)

    def _advance(self, to_s: float) -> None:
        to_s = min(to_s, self._end_s)
        while self._roster.next_event_s <= to_s:
            at_s = self._roster.next_event_s
            self._flow(at_s)
            self._roster.advance(at_s)
            self._resize()
        self._flow(to_s)

    def _resize(self) -> None:
        for station in self._stations.values():
            station.resize(len(self._roster.ready), self._now_s)

    def _flow(self, until_s: float) -> None:
        """Let records arrive and move on until then; operators are listed sources first."""
        self._now_s = max(self._now_s, until_s)
        arrivals_s, at = self._arrivals_s, self._arrived
        while at < len(arrivals_s) and arrivals_s[at] <= until_s:
            for source in self._sources:
                heappush(source.queue, (arrivals_s[at], arrivals_s[at]))
            at += 1
        self._arrived = at
        for name, station in self._stations.items():
            for done_s, born_s in station.serve(until_s, self._rng):
                for reader in station.readers:
                    heappush(reader.queue, (done_s, born_s))
                if name == self._job.answer:
                    self._answers_s.append(done_s)
                    self.responses_s.append(done_s - born_s)


def poisson_instants(rates_rps: Rates, rng: Random) -> list[float]:
    """Instants of arrival at random, with a mean rate per second.

    Exponential gaps in expected arrivals are laid along the cumulated rate.

    >>> instants = poisson_instants([0.0, 1000.0, 0.0], Random(1))
    >>> 900 < len(instants) < 1100, min(instants) >= 1.0, max(instants) <= 2.0
    (True, True, True)
    """
    instants: list[float] = []
    expected, due = 0.0, rng.expovariate(1.0)
    for second, rate_rps in enumerate(rates_rps):
        while due <= expected + rate_rps:
            instants.append(second + (due - expected) / rate_rps)
            due += rng.expovariate(1.0)
        expected += rate_rps
    return instants


def _cv2(count: int, total: float, squares: float) -> float | None:
    """Squared coefficient of variation from sums; ``None`` of fewer than two values."""
    if count < 2 or total <= 0.0:
        return None
    mean = total / count
    return max(0.0, squares / count - mean * mean) / (mean * mean)


def _staircase(instants_s: Sequence[float], end_s: float) -> Curve:
    """A curve that rises by one at each instant."""
    at_s, records = [0.0], [0.0]
    for count, instant_s in enumerate(instants_s):
        at_s += [instant_s, instant_s]
        records += [float(count), float(count + 1)]
    return Curve([*at_s, max(end_s, at_s[-1])], [*records, records[-1]])
