"""Faults of the sensor, the same on every engine: it does not answer, or it answers late."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from penstock.core.errors import SensorError
from penstock.core.model import Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.engine import Engine, Outcome
from penstock.simulation.engines.fleet import active
from penstock.simulation.faults import Fault, SensorBlind, SensorLate


class Impaired(InstantActuator):
    """An engine behind a sensor with faults; its actuator works.

    After the sensor was blind it shows means over all that time. While it is late it shows the
    latest snapshot that is old enough, with that snapshot's `at_s` and the fleet of now.
    """

    def __init__(self, engine: Engine, faults: Sequence[Fault]) -> None:
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
        self._keep(snapshot, now_s)
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

    def _keep(self, snapshot: Snapshot, now_s: float) -> None:
        """Forget what no fault can show any more: all but one that are old enough for each."""
        seen = self._seen
        seen.append(snapshot)
        while len(seen) > 1 and seen[1].at_s <= now_s - self._latest_s:
            seen.popleft()


def is_impaired(faults: Sequence[Fault]) -> bool:
    """Whether any of the faults is one of the sensor."""
    return any(isinstance(fault, SensorBlind | SensorLate) for fault in faults)


def impaired(engine: Engine, faults: Sequence[Fault]) -> Engine:
    """The engine behind its sensor's faults, or the engine itself if there are none."""
    return Impaired(engine, faults) if is_impaired(faults) else engine
