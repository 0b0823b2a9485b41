"""What sensors see: a simulated Kafka, and the faults of any engine's sensor.

Records arrive evenly within each second. A sensor asks for the end offsets: their change is the
arrival rate, what is not processed is the backlog, and the age of its oldest record the delay.
While the source is out nothing is seen; the first reading after that has the mean over the gap.
"""

from bisect import bisect_right
from collections import deque
from itertools import accumulate
from typing import NamedTuple

import msgspec

from penstock.core.errors import SensorError
from penstock.core.model import Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.engine import Curve, Engine, Outcome, Rates
from penstock.simulation.engines.fleet import active
from penstock.simulation.faults import Faults, SensorBlind, SensorLate, SourceOutage, with_silence


class SourceView(NamedTuple):
    """What one look at the source shows; ``None`` is not seen."""

    arrival_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None


class SimulatedSource:
    """The arrivals of one run.

    `rates_rps` and `arrived` are for the loop that cannot afford a call: records that arrived by
    t are ``arrived[int(t)] + (t - int(t)) * rates_rps[int(t)]``.

    >>> source = SimulatedSource([10.0, 30.0, 0.0])
    >>> source.arrived
    [0.0, 10.0, 40.0, 40.0]

    At 1.5 s 25 records have come; the 15th, the first that waits, came 1/3 s before:

    >>> source.look(1.5, processed=15.0)
    SourceView(arrival_rps=16.67, backlog_records=10.0, delay_s=0.33)
    """

    def __init__(self, rates_rps: Rates, faults: Faults = ()) -> None:
        self.rates_rps = with_silence(rates_rps, faults)
        self.arrived = list(accumulate(self.rates_rps, initial=0.0))
        self.duration_s = float(len(self.rates_rps))
        self._outages = [fault for fault in faults if isinstance(fault, SourceOutage)]
        self._seen_at_s = self._seen = 0.0
        self._oldest = 0

    def is_out(self, now_s: float) -> bool:
        return bool(self._outages) and bool(active(self._outages, SourceOutage, now_s))

    def arrivals(self) -> Curve:
        return Curve(list(map(float, range(len(self.arrived)))), self.arrived)

    def look(self, now_s: float, processed: float) -> SourceView:
        """What a sensor sees now, given the offset that is processed."""
        if self._outages and self.is_out(now_s):
            return SourceView()
        arrived = self._arrived_by(now_s)
        arrival_rps = None
        if now_s > self._seen_at_s:
            arrival_rps = (arrived - self._seen) / (now_s - self._seen_at_s)
            self._seen_at_s, self._seen = now_s, arrived
        if arrived <= processed:
            return SourceView(arrival_rps, 0.0, 0.0)
        # The oldest record that waits came in the last second that began with all processed, and
        # not before that of the last look: a search in a few seconds instead of all.
        until = min(int(now_s) + 1, len(self.arrived))
        second = self._oldest = bisect_right(self.arrived, processed, self._oldest, until) - 1
        since_s = second + (processed - self.arrived[second]) / self.rates_rps[second]
        return SourceView(arrival_rps, arrived - processed, max(0.0, now_s - since_s))

    def _arrived_by(self, now_s: float) -> float:
        second = int(now_s)
        if second >= len(self.rates_rps):
            return self.arrived[-1]
        return self.arrived[second] + (now_s - second) * self.rates_rps[second]


class Impaired(InstantActuator):
    """An engine behind a sensor with faults; its actuator works.

    After the sensor was blind it shows means over all that time. While it is late it shows the
    latest snapshot that is old enough, with that snapshot's `at_s` and the fleet of now.
    """

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = [f for f in faults if isinstance(f, SensorBlind | SensorLate)]
        lateness = [fault.late_s for fault in self._faults if isinstance(fault, SensorLate)]
        self._latest_s = max(lateness, default=0.0)
        self._seen: deque[Snapshot] = deque()

    def read(self, now_s: float) -> Snapshot:
        for blind in active(self._faults, SensorBlind, now_s):
            raise SensorError(f"the sensor has been blind since second {blind.at_s:g}")
        snapshot = self._engine.read(now_s)
        if self._latest_s == 0.0:
            return snapshot
        # Forget what no fault can show any more: all but one that are old enough for each.
        self._seen.append(snapshot)
        while len(self._seen) > 1 and self._seen[1].at_s <= now_s - self._latest_s:
            self._seen.popleft()
        late_s = max((late.late_s for late in active(self._faults, SensorLate, now_s)), default=0.0)
        for seen in reversed(self._seen):
            if seen.at_s <= now_s - late_s:
                # The target is known to the one who set it: only measurements come late.
                return msgspec.structs.replace(seen, fleet=snapshot.fleet)
        raise SensorError(f"the sensor is {late_s:g} s late and has nothing that old to show")

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        return self._engine.apply(target_executors, now_s)

    def finish(self) -> Outcome:
        return self._engine.finish()


def is_impaired(faults: Faults) -> bool:
    return any(isinstance(fault, SensorBlind | SensorLate) for fault in faults)


def impaired(engine: Engine, faults: Faults) -> Engine:
    """The engine behind its sensor's faults, or the engine itself if there are none."""
    return Impaired(engine, faults) if is_impaired(faults) else engine
