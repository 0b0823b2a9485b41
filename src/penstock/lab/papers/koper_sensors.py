"""How Koper's study saw its jobs: by Flink's gauges, and cpu by Kubernetes' metrics server."""

from __future__ import annotations

import msgspec

from penstock.model import ExecutorSample, Receipt, Snapshot
from penstock.simulation.engine import Engine, Outcome

#: The metrics server of that time took a sample each minute, of the minute before; the recorded
#: steps of the autoscaler are a minute apart where it grows without a pause.
CPU_WINDOW_S = 60.0


def as_the_study_measured(engine: Engine, *, minute_cpu: bool) -> Engine:
    """The engine behind the study's instruments."""
    return Instruments(engine, minute_cpu=minute_cpu)


class Instruments:
    """An engine seen through gauges of its operators.

    Throughput is that of the last operator. While the job is down there are no operators, and so
    neither throughput nor lag; what arrives is still known, for Kafka counts it.

    With `minute_cpu` the cpu of a worker is its mean over a full minute, renewed once a minute; a
    worker that has not been there for one is not measured yet.
    """

    def __init__(self, engine: Engine, *, minute_cpu: bool) -> None:
        self._engine = engine
        self._minute_cpu = minute_cpu
        self._renewed_at_s = 0.0
        self._sums: dict[str, tuple[float, int]] = {}
        self._shown: dict[str, float] = {}

    def read(self, now_s: float) -> Snapshot:
        seen = self._engine.read(now_s)
        executors = self._with_minute_cpu(seen, now_s) if self._minute_cpu else seen.executors
        if not seen.throughput_rps:
            return msgspec.structs.replace(
                seen,
                throughput_rps=None,
                backlog_records=None,
                delay_s=None,
                executors=executors,
                operators=(),
            )
        return msgspec.structs.replace(
            seen, throughput_rps=seen.operators[-1].input_rps, executors=executors
        )

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        return self._engine.apply(target_executors, now_s)

    def finish(self) -> Outcome:
        return self._engine.finish()

    def _with_minute_cpu(self, seen: Snapshot, now_s: float) -> tuple[ExecutorSample, ...]:
        for one in seen.executors:
            if one.cpu_fraction is not None:
                total, count = self._sums.get(one.id, (0.0, 0))
                self._sums[one.id] = (total + one.cpu_fraction, count + 1)
        if now_s >= self._renewed_at_s + CPU_WINDOW_S:
            most = max((count for _, count in self._sums.values()), default=0)
            self._shown = {
                name: total / count for name, (total, count) in self._sums.items() if count == most
            }
            self._sums = {}
            self._renewed_at_s = now_s
        return tuple(
            [
                msgspec.structs.replace(one, cpu_fraction=self._shown.get(one.id))
                for one in seen.executors
            ]
        )
