"""A continuous job fitted to recorded runs: given the same arrivals and workers, it does the same.

`fit` searches parameters with which a replay comes nearest to what was recorded: first those that
move records, then those of the gauges, which say how the use that a job makes of its capacity shows
as cpu, busy time and backpressure.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import chain, pairwise
from math import log1p
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import toml
from numpy.typing import NDArray

from penstock.core.errors import ConfigError
from penstock.simulation.calibration import rows as recordings
from penstock.simulation.calibration.fit_search import ROUNDS, Parameters, Space, descend, search
from penstock.simulation.calibration.rows import FEWEST_ROWS, Rows
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow
from penstock.simulation.engines.fleet import Startup
from penstock.simulation.engines.gauges import LEAST_SEEN

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAR_BEHIND_S = 20.0  #: Less than this is what a restart costs; more is far behind.

#: What is looked for: what moves records, the collapse of jobs that fall far behind, the gauges.
_SPACES: dict[str, Space] = toml.decode(
    (files(__package__) / "spaces.toml").read_bytes(), type=dict[str, Space]
)
_FLOW, _COLLAPSING = _SPACES["flow"], _SPACES["collapsing"]
#: From where to look: a slight collapse that comes early, and a deep one that comes late.
_COLLAPSES: tuple[Parameters, ...] = (
    {"late_contention": 0.1, "late_after_s": 20.0, "late_for_s": 60.0},
    {"late_contention": 0.3, "late_after_s": 40.0, "late_for_s": 90.0},
)
_COLLAPSE_MUST_GAIN = 0.25
#: Gauges are computed quickly, and policies act on a percent more or less.
_GAUGE_HALVINGS = 7
_LEAST_GAUGE_GAIN = 1e-5
LATE_S = 2.0  #: Records that wait longer are late.
#: A fleet that has not changed for this many rows, and still falls behind, is at full load.
_SETTLED_ROWS = 6


def replay(job: ContinuousJob, rows: Rows, window_s: float = 0.0) -> Rows:
    """What the simulated job shows, given the arrivals and the workers of a recording.

    `window_s` is the time over which the recorded rates and busy times are means: arrivals are
    led by half of it, and what comes out is averaged over as much.
    """
    run = _even(job).start(recordings.rates(rows, window_s), executors=rows[0].workers, seed=1)
    return recordings.averaged([rows[0], *recordings.followed(run, rows, rows[0].at_s)], window_s)


class RecordedRun:
    """A recorded run, prepared for comparison with many jobs."""

    def __init__(self, rows: Rows, window_s: float) -> None:
        self._rates = recordings.rates(rows, window_s)
        self._first_workers = rows[0].workers
        self._looks = recordings.looks(rows, rows[0].at_s)
        self._lengths_s = np.diff([0.0, *(at_s for at_s, _ in self._looks)])
        self._width = max(1, round(window_s / float(np.median(self._lengths_s))))
        self._delay_s, self._late = _measured(rows[1:], "delay_s")
        self._throughput_rps, self._worked = _measured(rows[1:], "throughput_rps")

    def loss(self, job: ContinuousJob) -> float:
        """How far off in throughput and in the logarithms of delays, which span decades."""
        run = _even(job).start(self._rates, executors=self._first_workers, seed=1)
        processed, delays = [0.0], []
        for at_s, change in self._looks:
            if change is not None:
                run.apply(*change)
            done, delay_s = run.glance(at_s)
            processed.append(done)
            delays.append(delay_s)
        done_rps = (np.diff(processed) / self._lengths_s).tolist()
        shown_rps = np.array(recordings.trailing(done_rps, self._width))
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
    noises = ("speed_spread", "capacity_noise", "measurement_noise", "restart_spread")
    zeros = dict.fromkeys(("wait_for_workers_s", *noises), 0.0)
    return msgspec.structs.replace(job, startup=Startup(0.0, 0.0), **zeros)


def fit(
    template: ContinuousJob, runs: Sequence[Rows], window_s: float = 0.0, rounds: int = ROUNDS
) -> ContinuousJob:
    """The job of that shape which comes nearest to the recorded runs.

    The template gives the operators, how their work compares, and all that is not looked for. The
    more `rounds`, the longer it looks around before it goes downhill.
    """
    if (fewest := min(map(len, runs))) < FEWEST_ROWS:
        needed = f"at least {FEWEST_ROWS} rows with arrivals and workers"
        raise ConfigError(f"a calibration needs {needed}, not {fewest}")
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
        space = _FLOW | _COLLAPSING
        found = [descend(space, flow_loss, around=best | start) for start in _COLLAPSES]
        collapsing = min(found, key=flow_loss)
        pairs = zip(losses(collapsing), losses(best), strict=True)
        # Some run has to be much better understood, and all together no worse.
        gains = any(loss < (1.0 - _COLLAPSE_MUST_GAIN) * without for loss, without in pairs)
        if gains and flow_loss(collapsing) < flow_loss(best):
            best = collapsing
    job = with_flow(best)
    shown = [replay(plain(job), rows, window_s) for rows in runs]
    return with_gauges(job, runs, shown)


def _first_guess_rps(runs: Sequence[Rows]) -> float:
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
    """The job with service times such that one worker has that rate."""
    factor = job.capacity_rps(1) / rps_per_worker
    operators = tuple(
        msgspec.structs.replace(one, service_s=one.service_s * factor) for one in job.operators
    )
    return msgspec.structs.replace(job, operators=operators)


def plain(job: ContinuousJob) -> ContinuousJob:
    """The job with a busy gauge that shows how much of its capacity it uses, and nothing else."""
    losses = ("calm_loss_in_busy", "pressed_loss_in_busy")
    ones = dict.fromkeys(("busy_at_saturation", "busy_exponent", *losses), 1.0)
    return msgspec.structs.replace(job, **ones)


class _Use(NamedTuple):
    """What a job did, row by row."""

    used: Array  #: The part of its capacity.
    pressed: Array  #: Whether records waited.
    efficiency: Array  #: What contention left of a worker's speed.

    def at(self, rows: Mask) -> _Use:
        return _Use(*(column[rows] for column in self))

    def seen(self, calm: float, pressed: float) -> Array:
        """What a gauge counts that sees these parts of what is lost to contention."""
        loss_seen = calm + (pressed - calm) * self.pressed
        kept = np.maximum(LEAST_SEEN, self.efficiency + (1.0 - self.efficiency) * loss_seen)
        return np.asarray(self.used * kept)


def with_gauges(job: ContinuousJob, runs: Sequence[Rows], shown: Sequence[Rows]) -> ContinuousJob:
    """Fit the gauges to the use of the capacity; `shown` is what the `plain` job shows."""
    rows, replayed = list(chain.from_iterable(runs)), list(chain.from_iterable(shown))
    share = fmean(Dataflow(job.operators).regime([1.0], cores=job.cores_per_executor).busy)
    # A plain job shows its use of the capacity as busy time, the same for all operators but for
    # their share of the work.
    use = _Use(
        np.array([min(1.0, (mine.busy_fraction or 0.0) / share) for mine in replayed]),
        np.array([float((mine.delay_s or 0.0) > 0.5) for mine in replayed]),
        np.array([1.0 / (1.0 + job.contention * (row.workers - 1)) for row in rows]),
    )
    cpu, there = _measured(rows, "cpu_fraction")
    found = _fit_cpu(runs, cpu, use.at(there), there)
    busy, there = _measured(rows, "busy_fraction")
    found |= _fit_busy(share, busy, use.at(there))
    held, there = _measured(rows, "backpressured_fraction")
    calm = use.at(there)
    near_full = (calm.pressed == 0.0) & (calm.used > 0.3)
    if near_full.any():
        ratio = held[near_full] / calm.used[near_full] ** 2
        found["calm_backpressure_fraction"] = float(np.clip(np.median(ratio), 0.0, 1.0))
    if (part := _held_back(job, rows)) is not None:
        found["pressed_backpressure_fraction"] = part
    return msgspec.structs.replace(job, **found)


def _measured(rows: Rows, metric: str) -> tuple[Array, Mask]:
    """What was recorded of a metric, and in which rows it was."""
    values = [getattr(row, metric) for row in rows]
    there = np.array([value is not None for value in values], dtype=bool)
    return np.array([value for value in values if value is not None], dtype=float), there


def _fit_cpu(runs: Sequence[Rows], cpu: Array, use: _Use, there: Mask) -> Parameters:
    if not len(cpu):
        return {}
    full = np.array([flag for rows in runs for flag in _overloaded(rows)])[there]
    # What cpu shows at full load decides whether a policy grows: those few rows count for as
    # much as all the others.
    weights = 1.0 + full * (len(full) / max(1, full.sum()))

    def loss(v: Parameters) -> float:
        seen = use.seen(v["calm_loss_in_cpu"], v["pressed_loss_in_cpu"])
        idle = v["idle_cpu_fraction"]
        shown = idle + (v["full_cpu_fraction"] - idle) * seen ** v["cpu_exponent"]
        return float(np.average(np.abs(np.minimum(1.0, shown) - cpu), weights=weights))

    found = descend(_SPACES["cpu"], loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
    after_rescales = [
        after.cpu_fraction
        for rows in runs
        for before, after in pairwise(rows)
        if before.workers != after.workers and after.cpu_fraction is not None
    ]
    restart = fmean(after_rescales) if after_rescales else found["full_cpu_fraction"]
    return found | {"restart_cpu_fraction": min(1.0, restart)}


def _fit_busy(share: float, busy: Array, use: _Use) -> Parameters:
    if not len(busy):
        return {}

    def loss(v: Parameters) -> float:
        seen = use.seen(v["calm_loss_in_busy"], v["pressed_loss_in_busy"])
        return float(np.abs(v["full"] * seen ** v["busy_exponent"] - busy).mean())

    found = descend(_SPACES["busy"], loss, _GAUGE_HALVINGS, _LEAST_GAUGE_GAIN)
    full = found.pop("full")
    return found | {"busy_at_saturation": min(1.0, full / share)}


def _held_back(job: ContinuousJob, rows: Rows) -> float | None:
    """Of the time without work of what feeds the fullest operator, the part that is not idle.

    Taken from rows of late records. ``None`` if there are none, or if nothing feeds that operator.
    """
    flow = Dataflow(job.operators)
    fullest = flow.regime([1.0], cores=job.cores_per_executor).bottleneck
    feeding = len(flow.ancestors[fullest]) / len(job.operators)
    parts = [
        (1.0 - row.busy_fraction - row.idle_fraction) / (feeding * (1.0 - row.busy_fraction))
        for row in rows
        if feeding and row.idle_fraction is not None and (row.delay_s or 0.0) > LATE_S
        if row.busy_fraction is not None and row.busy_fraction < 1.0
    ]
    return min(1.0, max(0.0, median(parts))) if parts else None


def _overloaded(rows: Rows) -> list[bool]:
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
