"""A simulated Kafka: what has arrived at each instant, and what a sensor sees of it.

Records arrive evenly within each second. A sensor asks for the end offsets: their change is the
arrival rate, what is not processed is the backlog, and the age of its oldest record the delay.
While the source is out nothing is seen; the first reading after that has the mean over the gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.simulation.engines.engine import Curve
from penstock.simulation.engines.fleet import active
from penstock.simulation.faults import Fault, SourceOutage, with_silence


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

    def __init__(self, rates_rps: Sequence[float], faults: Sequence[Fault] = ()) -> None:
        self.rates_rps = with_silence(rates_rps, faults)
        self.arrived = list(accumulate(self.rates_rps, initial=0.0))
        self.duration_s = float(len(self.rates_rps))
        self._outages = [fault for fault in faults if isinstance(fault, SourceOutage)]
        self._seen_at_s = 0.0
        self._seen = 0.0
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
