"""How Koper's study saw its jobs: by Flink's gauges, and cpu by Kubernetes' metrics server."""

from collections import deque

from msgspec.structs import replace

from penstock.core.model import ExecutorSample, OperatorSample, Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.engine import Engine, Outcome

#: The metrics server of that time took a sample each minute, of the minute before; the recorded
#: steps of the autoscaler are a minute apart where it grows without a pause.
CPU_WINDOW_S = 60.0
#: Kafka's consumers report the largest lag of the last 30 to 60 s: of two samples of 30 s each.
LAG_WINDOW_S = 45.0


class StudyGauges(InstantActuator):
    """An engine seen through gauges of its operators.

    Throughput is that of the last operator. While the job is down there are no operators, and so
    neither throughput nor lag; what arrives is still known, for Kafka counts it. Operators that
    start up are not idle yet: the recorded idle time of a job that has just restarted falls short
    of what busy and backpressured time leave of the minute, by a third. Lag is the largest of
    the last while, since the job last started.

    With `minute_cpu` the cpu of a worker is its mean over a full minute, renewed once a minute; a
    worker that has not been there for one is not measured yet.

    With `lag_per_worker` lag and throughput are those of one worker: the query that feeds Varga's
    autoscaler groups them by pod, so that its threshold holds for each.

    Each instance of an operator counts `counted` times.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        minute_cpu: bool = False,
        lag_per_worker: bool = False,
        counted: int = 1,
    ) -> None:
        self._engine = engine
        self._minute_cpu = minute_cpu
        self._lag_per_worker = lag_per_worker
        self._counted = counted
        self._lags: deque[tuple[float, float]] = deque()
        #: With how many workers the job ran when last seen; none while it is down.
        self._ran_with: int | None = None
        self._renewed_at_s = 0.0
        self._sums: dict[str, tuple[float, int]] = {}
        self._shown: dict[str, float] = {}

    def read(self, now_s: float) -> Snapshot:
        seen = self._engine.read(now_s)
        executors = self._with_minute_cpu(seen, now_s) if self._minute_cpu else seen.executors
        starts_up = self._ran_with not in (None, seen.fleet.active)
        self._ran_with = seen.fleet.active if seen.throughput_rps else 0
        if starts_up or not seen.throughput_rps:
            self._lags.clear()
        if not seen.throughput_rps:
            unknown = dict.fromkeys(("throughput_rps", "backlog_records", "delay_s"))
            return replace(seen, **unknown, executors=executors, operators=())
        rate_rps, lag = seen.operators[-1].input_rps, self._largest_lag(seen, now_s)
        if self._lag_per_worker and rate_rps is not None and lag is not None:
            workers = max(1, seen.fleet.active)
            rate_rps, lag = rate_rps / workers, lag / workers
        shown = self._as_shown(seen.operators, starts_up=starts_up)
        return replace(
            seen, throughput_rps=rate_rps, backlog_records=lag, executors=executors, operators=shown
        )

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        return self._engine.apply(target_executors, now_s)

    def finish(self) -> Outcome:
        return self._engine.finish()

    def _largest_lag(self, seen: Snapshot, now_s: float) -> float | None:
        if seen.backlog_records is None:
            return None
        lags = self._lags
        lags.append((now_s, seen.backlog_records))
        while lags[0][0] <= now_s - LAG_WINDOW_S:
            lags.popleft()
        return max(lag for _, lag in lags)

    def _as_shown(
        self, operators: tuple[OperatorSample, ...], *, starts_up: bool
    ) -> tuple[OperatorSample, ...]:
        if self._counted == 1 and not starts_up:
            return operators
        shown = []
        for one in operators:
            tasks = one.tasks and self._counted * one.tasks
            idle = 0.0 if starts_up else one.idle_fraction
            shown.append(replace(one, tasks=tasks, idle_fraction=idle))
        return tuple(shown)

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
        return tuple([replace(one, cpu_fraction=self._shown.get(one.id)) for one in seen.executors])
