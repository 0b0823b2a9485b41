"""A continuous job fitted to recorded runs: given the same arrivals and workers, it does the same.

`replay` feeds a job on paper with the arrivals and the worker counts of a recording and gives the
rows that it would have shown. `fit` looks for the parameters with which that comes nearest to what
was recorded: first those that move records (capacity, contention, downtime, warming up), then
those of the gauges (cpu, busy time, backpressure).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log1p
from operator import itemgetter
from random import Random
from statistics import fmean, median

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.simulation.continuous import ContinuousJob
from penstock.simulation.dataflow import Dataflow
from penstock.simulation.fleet import Startup
from penstock.simulation.recorded import Row, averaged, rates, row_of, trailing

Array = NDArray[np.float64]
Parameters = dict[str, float]
#: Of each parameter: where the search starts, its first step, and the bounds.
Space = dict[str, tuple[float, float, float, float]]

#: Fewer rows say too little about a job.
FEWEST_ROWS = 20
#: Records that wait so long are late: what departs then is what the fleet can do.
LATE_S = 2.0
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
    "late_coherence": (0.024, 0.008, 0.002, 0.2),
    "late_after_s": (35.0, 10.0, FAR_BEHIND_S, 120.0),
}
_COLLAPSE_MUST_GAIN = 0.25
_CPU: Space = {
    "idle_cpu_fraction": (0.08, 0.04, 0.0, 0.5),
    "full_cpu_fraction": (1.0, 0.05, 0.3, 1.1),
    "calm_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
    "pressed_loss_in_cpu": (0.5, 0.25, 0.0, 1.0),
    "cpu_exponent": (1.0, 0.2, 0.4, 2.0),
}
_BUSY: Space = {
    "full": (0.6, 0.1, 0.05, 1.0),
    "busy_exponent": (1.2, 0.3, 0.5, 3.0),
    "calm_loss_in_busy": (0.5, 0.25, 0.0, 1.0),
    "pressed_loss_in_busy": (0.5, 0.25, 0.0, 1.0),
}
#: How often the steps of a search are halved, and the least gain that is worth a step.
_HALVINGS = 3
_LEAST_GAIN = 0.002
#: Gauges are quickly worked out, and policies act on a percent more or less.
_GAUGE_HALVINGS = 7
_LEAST_GAUGE_GAIN = 1e-5
#: A fleet that has not changed for so many rows, and still falls behind, is at full load.
_SETTLED_ROWS = 6
#: So many places are looked at, so many steps around the first; then so many near each of the best,
#: twice; and those that are best in the end are gone down from.
_PLACES = 120
_REACH = 3.0
_PLACES_NEAR = 16
_DESCENTS = 5


def replay(job: ContinuousJob, rows: Sequence[Row], window_s: float = 0.0) -> list[Row]:
    """What the job on paper shows, given the arrivals and the workers of a recording.

    `window_s` is the time over which the recorded rates and busy times are means: arrivals are
    led by half of it, and what comes out is averaged over as much. Nothing is left to chance.
    """
    begin_s = rows[0].at_s
    run = _even(job).start(rates(rows, window_s), executors=rows[0].workers, seed=1)
    shown = [rows[0]]
    for before, row in pairwise(rows):
        if row.workers != before.workers:
            run.apply(row.workers, (before.at_s + row.at_s) / 2.0 - begin_s)
        seen = row_of(run.read(row.at_s - begin_s), row.arrival_rps)
        shown.append(msgspec.structs.replace(seen, at_s=row.at_s))
    return averaged(shown, window_s)


class Recording:
    """A recorded run, made ready to be compared with many a job."""

    def __init__(self, rows: Sequence[Row], window_s: float) -> None:
        begin_s = rows[0].at_s
        self._rates = rates(rows, window_s)
        self._first_workers = rows[0].workers
        #: When to look, and before that the change of workers, if there is one.
        self._looks: list[tuple[float, tuple[int, float] | None]] = []
        for before, row in pairwise(rows):
            change = None
            if row.workers != before.workers:
                change = row.workers, (before.at_s + row.at_s) / 2.0 - begin_s
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
        """Whether records waited so long, so often, that a collapse would show."""
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
    template: ContinuousJob, runs: Sequence[Sequence[Row]], window_s: float = 0.0
) -> ContinuousJob:
    """The job of that shape which comes nearest to the recorded runs.

    The template gives the operators, how their work compares, and all that is not looked for.
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

    records = [Recording(rows, window_s) for rows in runs]

    def flow_loss(values: Parameters) -> float:
        job = with_flow(values)
        return fmean([record.loss(job) for record in records])

    best = _search(_FLOW, flow_loss)
    if any(record.falls_far_behind for record in records):
        collapse = {name: start for name, (start, _, _, _) in _COLLAPSING.items()}
        collapsing = _search(_FLOW | _COLLAPSING, flow_loss, best | collapse)
        if flow_loss(collapsing) < (1.0 - _COLLAPSE_MUST_GAIN) * flow_loss(best):
            best = collapsing
    job = with_flow(best)
    return _with_gauges(job, runs, window_s)


def _first_guess_rps(runs: Sequence[Sequence[Row]]) -> float:
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


def _with_gauges(
    job: ContinuousJob, runs: Sequence[Sequence[Row]], window_s: float
) -> ContinuousJob:
    """Fit what the gauges show to how much of its capacity the job used."""
    plain = msgspec.structs.replace(
        job,
        busy_at_saturation=1.0,
        busy_exponent=1.0,
        calm_loss_in_busy=1.0,
        pressed_loss_in_busy=1.0,
    )
    shares = _busy_shares(job)
    rows_of_both = [
        (theirs, mine)
        for rows in runs
        for theirs, mine in zip(rows, replay(plain, rows, window_s), strict=True)
    ]
    # A plain job shows its use of the capacity as busy time, the same for all operators but for
    # their share of the work.
    used = np.array(
        [min(1.0, (mine.busy_fraction or 0.0) / fmean(shares)) for _, mine in rows_of_both]
    )
    pressed = np.array([float((mine.delay_s or 0.0) > 0.5) for _, mine in rows_of_both])
    kept = np.array([_efficiency(job, theirs.workers) for theirs, _ in rows_of_both])
    found: Parameters = {}

    cpu, there = _column(rows_of_both, lambda row: row.cpu_fraction)
    if len(cpu):
        u, p, e = used[there], pressed[there], kept[there]
        full = np.array([flag for rows in runs for flag in _overloaded(rows)])[there]
        # What cpu shows at full load decides whether a policy grows: those few rows count for as
        # much as all the others.
        weights = 1.0 + full * (len(full) / max(1, full.sum()))

        def cpu_loss(v: Parameters) -> float:
            seen = u * (e + (1 - e) * _mixed(v["calm_loss_in_cpu"], v["pressed_loss_in_cpu"], p))
            idle = v["idle_cpu_fraction"]
            shown = idle + (v["full_cpu_fraction"] - idle) * seen ** v["cpu_exponent"]
            shown = np.minimum(1.0, shown)
            return float(np.average(np.abs(shown - cpu), weights=weights))

        found |= _descend(_CPU, cpu_loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
        found["restart_cpu_fraction"] = _restart_cpu(runs, found["full_cpu_fraction"])

    busy, there = _column(rows_of_both, lambda row: row.busy_fraction)
    if len(busy):
        u, p, e = used[there], pressed[there], kept[there]

        def busy_loss(v: Parameters) -> float:
            seen = u * (e + (1 - e) * _mixed(v["calm_loss_in_busy"], v["pressed_loss_in_busy"], p))
            return float(np.abs(v["full"] * seen ** v["busy_exponent"] - busy).mean())

        best = _descend(_BUSY, busy_loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
        found["busy_at_saturation"] = min(1.0, best.pop("full") / fmean(shares))
        found |= best

    held, there = _column(rows_of_both, lambda row: row.backpressured_fraction)
    calm = (pressed[there] == 0.0) & (used[there] > 0.3)
    if calm.any():
        ratio = held[calm] / used[there][calm] ** 2
        found["calm_backpressure_fraction"] = float(np.clip(np.median(ratio), 0.0, 1.0))
    return msgspec.structs.replace(job, **found)


def _overloaded(rows: Sequence[Row]) -> list[bool]:
    """In which rows a settled fleet did all that it can, and it was not enough."""
    flags = [False] * len(rows)
    for place in range(_SETTLED_ROWS, len(rows)):
        row, before = rows[place], rows[place - _SETTLED_ROWS : place]
        done, late_s, was_late_s = row.throughput_rps, row.delay_s, before[-1].delay_s
        if done is None or late_s is None or was_late_s is None:
            continue
        settled = all(one.workers == row.workers for one in before)
        behind = late_s > max(1.0, was_late_s) and done < 0.985 * row.arrival_rps
        flags[place] = settled and behind
    return flags


def _mixed(calm: float, pressed: float, held_back: Array) -> Array:
    return calm + (pressed - calm) * held_back


def _column(
    both: Sequence[tuple[Row, Row]], metric: Callable[[Row], float | None]
) -> tuple[Array, NDArray[np.bool_]]:
    """What was recorded of a metric, and in which rows."""
    values = [metric(theirs) for theirs, _ in both]
    there = np.array([value is not None for value in values], dtype=bool)
    return np.array([value for value in values if value is not None]), there


def _busy_shares(job: ContinuousJob) -> tuple[float, ...]:
    """How busy each operator is relative to the fullest."""
    return Dataflow(job.operators).regime([1.0], cores=job.cores_per_executor).busy


def _efficiency(job: ContinuousJob, workers: int) -> float:
    return 1.0 / (1.0 + (job.contention + job.coherence * workers) * (workers - 1))


def _restart_cpu(runs: Sequence[Sequence[Row]], otherwise: float) -> float:
    """Mean cpu in the first sample after each rescale."""
    seen = [
        after.cpu_fraction
        for rows in runs
        for before, after in pairwise(rows)
        if before.workers != after.workers and after.cpu_fraction is not None
    ]
    return min(1.0, fmean(seen) if seen else otherwise)


def _search(space: Space, loss: Callable[[Parameters], float], *known: Parameters) -> Parameters:
    """Look around at random places, the same each time, and go down from the best of them.

    From several, because the one that looks best is not always above the deepest valley; and from
    those that are known to be good.
    """
    lots = Random(1)

    def near(middle: Parameters, reach: float) -> Parameters:
        return {
            name: min(max(middle[name] + lots.uniform(-reach, reach) * step, low), high)
            for name, (_, step, low, high) in space.items()
        }

    start = {name: first for name, (first, _, _, _) in space.items()}
    tried = [(loss(place), place) for place in (start, *known)]
    looks = [near(start, _REACH) for _ in range(_PLACES)]
    for zoom in (0.5, 0.25, 0.0):
        tried += [(loss(place), place) for place in looks]
        tried.sort(key=itemgetter(0))
        best = [place for _, place in tried[:_DESCENTS]]
        looks = [near(place, zoom * _REACH) for place in best for _ in range(_PLACES_NEAR)]
    found = [
        _descend(
            {
                name: (place[name], step / 2.0, low, high)
                for name, (_, step, low, high) in space.items()
            },
            loss,
        )
        for place in best
    ]
    return min(found, key=loss)


def _descend(
    space: Space,
    loss: Callable[[Parameters], float],
    halvings: int = _HALVINGS,
    least_gain: float = _LEAST_GAIN,
) -> Parameters:
    """The parameters of least loss: step along each axis while that helps, then halve the steps.

    >>> found = _descend({"x": (0.0, 0.8, -5.0, 5.0)}, lambda v: abs(v["x"] - 2.0))
    >>> round(found["x"], 1)
    2.0
    """
    best = {name: start for name, (start, _, _, _) in space.items()}
    least = loss(best)
    steps = {name: step for name, (_, step, _, _) in space.items()}
    for _ in range(halvings + 1):
        improved = True
        while improved:
            improved = False
            for name, (_, _, low, high) in space.items():
                for sign in (1.0, -1.0):
                    moved = min(max(best[name] + sign * steps[name], low), high)
                    if moved == best[name]:
                        continue
                    tried = {**best, name: moved}
                    if (value := loss(tried)) < least * (1.0 - least_gain):
                        best, least, improved = tried, value, True
                        break
        steps = {name: step / 2.0 for name, step in steps.items()}
    return best
