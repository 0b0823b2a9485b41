"""A continuous job fitted to recorded runs: given the same arrivals and workers, it does the same.

`replay` gives a simulated job the arrivals and workers of a recording. `fit` searches parameters
with which that comes nearest to what was recorded: first those that move records, then those of
the gauges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log1p
from statistics import fmean, median

import msgspec
import numpy as np

from penstock.core.errors import ConfigError
from penstock.simulation.calibration.fit_gauges import LATE_S, plain, with_gauges
from penstock.simulation.calibration.fit_search import (
    ROUNDS,
    Parameters,
    Space,
    around,
    descend,
    search,
)
from penstock.simulation.calibration.rows import (
    FEWEST_ROWS,
    RecordedSample,
    averaged,
    changed_at_s,
    followed,
    rates,
    trailing,
)
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.fleet import Startup

#: Less than this is what a restart costs; more is far behind.
FAR_BEHIND_S = 20.0

#: What moves records. The capacity of a worker is relative to a first guess.
_FLOW: Space = {
    "capacity": (1.0, 0.08, 0.2, 5.0),
    "contention": (0.05, 0.03, 0.0, 1.0),
    "restart_s": (8.0, 3.0, 0.0, 120.0),
    "join_s": (6.0, 3.0, 0.0, 120.0),
    "cold_fraction": (0.8, 0.1, 0.2, 1.0),
    "warmup_s": (90.0, 40.0, 0.0, 300.0),
    "catch_up_fraction": (1.0, 0.25, 0.05, 1.0),
}
#: Some jobs collapse when they fall far behind. That explains much, so it must explain well.
_COLLAPSING: Space = {
    "late_contention": (0.2, 0.1, 0.02, 2.0),
    "late_after_s": (30.0, 10.0, 10.0, 120.0),
    "late_for_s": (60.0, 30.0, 0.0, 300.0),
}
#: From where to look: a slight collapse that comes early, and a deep one that comes late.
_COLLAPSES: tuple[Parameters, ...] = (
    {"late_contention": 0.1, "late_after_s": 20.0, "late_for_s": 60.0},
    {"late_contention": 0.3, "late_after_s": 40.0, "late_for_s": 90.0},
)
_COLLAPSE_MUST_GAIN = 0.25


def replay(
    job: ContinuousJob, rows: Sequence[RecordedSample], window_s: float = 0.0
) -> list[RecordedSample]:
    """What the simulated job shows, given the arrivals and the workers of a recording.

    `window_s` is the time over which the recorded rates and busy times are means: arrivals are
    led by half of it, and what comes out is averaged over as much.
    """
    run = _even(job).start(rates(rows, window_s), executors=rows[0].workers, seed=1)
    shown = [rows[0], *followed(run, rows, rows[0].at_s)]
    return averaged(shown, window_s)


class RecordedRun:
    """A recorded run, prepared for comparison with many jobs."""

    def __init__(self, rows: Sequence[RecordedSample], window_s: float) -> None:
        begin_s = rows[0].at_s
        self._rates = rates(rows, window_s)
        self._first_workers = rows[0].workers
        #: When to look, and before that the change of workers, if there is one.
        self._looks: list[tuple[float, tuple[int, float] | None]] = []
        for before, row in pairwise(rows):
            change = None
            if row.workers != before.workers:
                change = row.workers, changed_at_s(before, row) - begin_s
            self._looks.append((row.at_s - begin_s, change))
        at_s = np.array([0.0, *(look for look, _ in self._looks)])
        self._lengths_s = np.diff(at_s)
        self._width = max(1, round(window_s / float(np.median(self._lengths_s))))
        delays = [row.delay_s for row in rows[1:]]
        self._late = np.array([delay is not None for delay in delays], dtype=bool)
        self._delay_s = np.array([delay for delay in delays if delay is not None])
        done = [row.throughput_rps for row in rows[1:]]
        self._worked = np.array([rps is not None for rps in done], dtype=bool)
        self._throughput_rps = np.array([rps for rps in done if rps is not None])

    def loss(self, job: ContinuousJob) -> float:
        """How far off in delay, row by row and on average, and in throughput.

        Delays span decades, so it is their logarithms that are compared.
        """
        run = _even(job).start(self._rates, executors=self._first_workers, seed=1)
        processed, delays = [0.0], []
        for at_s, change in self._looks:
            if change is not None:
                run.apply(*change)
            done, delay_s = run.glance(at_s)
            processed.append(done)
            delays.append(delay_s)
        shown_rps = np.array(trailing((np.diff(processed) / self._lengths_s).tolist(), self._width))
        off = 0.0
        if (total := self._throughput_rps.sum()) > 0.0:
            off += float(np.abs(shown_rps[self._worked] - self._throughput_rps).sum() / total)
        if len(self._delay_s):
            shown_s = np.array(delays)[self._late]
            off += float(np.abs(np.log1p(shown_s) - np.log1p(self._delay_s)).mean())
            off += abs(log1p(shown_s.mean()) - log1p(self._delay_s.mean()))
        return off

    @property
    def falls_far_behind(self) -> bool:
        """Whether records waited long and often enough to show a collapse."""
        return int((self._delay_s > 2.0 * FAR_BEHIND_S).sum()) >= FEWEST_ROWS


def _even(job: ContinuousJob) -> ContinuousJob:
    """The job without chance, and with workers that are there at once."""
    return msgspec.structs.replace(
        job,
        startup=Startup(0.0, 0.0),
        wait_for_workers_s=0.0,
        speed_spread=0.0,
        capacity_noise=0.0,
        measurement_noise=0.0,
        restart_spread=0.0,
    )


def fit(
    template: ContinuousJob,
    runs: Sequence[Sequence[RecordedSample]],
    window_s: float = 0.0,
    rounds: int = ROUNDS,
) -> ContinuousJob:
    """The job of that shape which comes nearest to the recorded runs.

    The template gives the operators, how their work compares, and all that is not looked for. The
    more `rounds`, the longer it looks around before it goes downhill.
    """
    for rows in runs:
        if len(rows) < FEWEST_ROWS:
            raise ConfigError(
                f"a calibration needs at least {FEWEST_ROWS} rows with arrivals and workers, "
                f"not {len(rows)}"
            )
    guess_rps = _first_guess_rps(runs)
    template = msgspec.structs.replace(template, state_bytes=0.0)

    def with_flow(values: Parameters) -> ContinuousJob:
        others = {name: value for name, value in values.items() if name != "capacity"}
        return _scaled(msgspec.structs.replace(template, **others), guess_rps * values["capacity"])

    records = [RecordedRun(rows, window_s) for rows in runs]

    def losses(values: Parameters) -> list[float]:
        job = with_flow(values)
        return [record.loss(job) for record in records]

    def flow_loss(values: Parameters) -> float:
        return fmean(losses(values))

    best = search(_FLOW, flow_loss, rounds)
    if any(record.falls_far_behind for record in records):
        collapsing = min(
            (descend(around(best | start, _FLOW | _COLLAPSING), flow_loss) for start in _COLLAPSES),
            key=flow_loss,
        )
        if _explains(losses(collapsing), losses(best)):
            best = collapsing
    job = with_flow(best)
    shown = [replay(plain(job), rows, window_s) for rows in runs]
    return with_gauges(job, runs, shown)


def _explains(collapsing: Sequence[float], best: Sequence[float]) -> bool:
    """Whether a collapse makes some run much better understood, and all together no worse."""
    return fmean(collapsing) < fmean(best) and any(
        with_it < (1.0 - _COLLAPSE_MUST_GAIN) * without
        for with_it, without in zip(collapsing, best, strict=True)
    )


def _first_guess_rps(runs: Sequence[Sequence[RecordedSample]]) -> float:
    """The rate of one worker: what the hardest working ones did, or what busy time promises."""
    every = [row for rows in runs for row in rows]
    done = [row.throughput_rps / row.workers for row in every if row.throughput_rps]
    if not done:
        raise ConfigError("a calibration needs rows with a throughput, and there are none")
    seen = float(np.quantile(done, 0.95))
    if any(row.delay_s is not None and row.delay_s > LATE_S for row in every):
        return seen
    # Nothing ever waited: how much more they could do, only their gauges tell.
    promised = [
        row.throughput_rps / row.workers / row.busy_fraction
        for row in every
        if row.throughput_rps and row.busy_fraction and row.busy_fraction > 0.05
    ]
    return max(seen, median(promised)) if promised else seen


def _scaled(job: ContinuousJob, rps_per_worker: float) -> ContinuousJob:
    """The job with service times such that one worker does so much."""
    factor = job.capacity_rps(1) / rps_per_worker
    operators = tuple(
        msgspec.structs.replace(one, service_s=one.service_s * factor) for one in job.operators
    )
    return msgspec.structs.replace(job, operators=operators)
