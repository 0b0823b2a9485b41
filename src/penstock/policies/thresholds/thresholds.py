"""Two thresholds on filtered cpu, memory and other metrics (Borkowski et al., VLDB 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, structs

from penstock.core.errors import ConfigError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Limits, Reason, Snapshot, not_measured
from penstock.core.phrases import executors as count_executors
from penstock.core.phrases import resized
from penstock.policies.algorithms.measurements import hold, last_run
from penstock.policies.thresholds import filters
from penstock.policies.thresholds.bands import ROUNDING, Metric, MetricBand, compared, metric_bands

#: Beyond six standard deviations a Gaussian weight is below 1.6e-8: not worth remembering.
KERNEL_DEVIATIONS = 6.0
#: After this many periods without a turn, a fleet of new executors is another run of the job.
RESTART_PERIODS = 20

Numbers = tuple[float, ...]  #: One per metric.


class FilterMemory(Struct, frozen=True, tag=True, omit_defaults=True):
    """What the filters carry from turn to turn: `times_s` and `past` for gauss, the rest for ekf.

    It holds executors that are there now, and no longer past than the kernel sees. `past` has a
    series per metric of each executor; its last value is that of the last of `times_s`.
    """

    started: bool = False
    times_s: tuple[float, ...] = ()
    past: dict[str, tuple[tuple[float, ...], ...]] = {}
    at_s: float | None = None
    arrival_rps: float | None = None
    tracks: dict[str, filters.ExecutorFilter] = {}
    fits: tuple[filters.InputFit, ...] = ()


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Grow when a filtered metric is high, shrink when all are low.

    The rule: with ``m_k`` the mean over executors of their filtered metric ``k``, grow if any
    ``m_k > upper``, shrink if all ``m_k < lower``. `pure` (no filter) and `gauss` (left half of a
    Gaussian kernel) move by one executor. `ekf` (Kalman filter with the arrival rate as its input)
    sizes at once: ``n = max_k ceil(sum of filtered load_k / sized_for)``.

    The Kalman filter, per executor and metric: ``f(x, u) = x + a D + b dD``, where ``D`` is the
    rate per executor, ``dD`` its change, ``a`` and ``b`` by least squares; it learns its start
    during a dead time and is not used during an ease-in time after that.
    """

    filter: Literal["pure", "gauss", "ekf"] = "ekf"
    metrics: Annotated[tuple[Metric, ...], Meta(min_length=1)] = ("cpu_fraction", "memory_fraction")
    lower_fraction: Annotated[float, Meta(ge=0)] = 0.45
    upper_fraction: Annotated[float, Meta(gt=0)] = 0.8
    network_bytes: tuple[float, ...] = ()
    disk_bytes: tuple[float, ...] = ()
    variance_s2: Annotated[float, Meta(gt=0)] = 9.0
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    sized_for_fraction: Annotated[float, Meta(gt=0)] | None = None
    rate_effects: tuple[float, ...] = ()
    waits_for_newcomers: bool = False
    noise: Annotated[float, Meta(gt=0)] = 0.005
    dead_time_s: Annotated[float, Meta(ge=0)] = 10.0
    ease_in_s: Annotated[float, Meta(ge=0)] = 10.0
    warm_start: bool = True
    initial_executors: Annotated[int, Meta(ge=1)] | None = None
    period_s: Annotated[float, Meta(gt=0)] = 0.5

    default_limits: ClassVar[Limits] = Limits(max_executors=32)
    wakes_on_surge: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("network_bytes", "disk_bytes"):
            band = getattr(self, name)
            if band and not (len(band) == 2 and 0.0 <= band[0] < band[1] < inf):
                shown = "|".join(f"{value:g}" for value in band)
                raise ConfigError(f"{name} must be a lower and a higher threshold, not {shown}")
        count = len(self._bands)
        if self.rate_effects and len(self.rate_effects) != count:
            counts = f"({count}), not {len(self.rate_effects)}"
            raise ConfigError(f"rate_effects need one number per metric {counts}")

    def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        memory = self._recalled(knowledge)
        target, bands = snapshot.fleet.target, self._bands
        before = last_run(snapshot, knowledge, RESTART_PERIODS * self.period_s)
        if before or not memory.started:
            memory = FilterMemory(started=True, fits=memory.fits)
            if (start := self._start(before, memory)) is not None:
                return start
        executors = [executor for executor in snapshot.executors if executor.ready]
        means = tuple(band.mean(executors) for band in bands)
        missing = [band.name for band, mean in zip(bands, means, strict=True) if mean is None]
        if self.filter == "ekf" and snapshot.arrival_rps is None:
            missing.append("arrival_rps")
        if missing:
            return not_measured(target, *missing, memory=memory)
        measured = tuple(mean for mean in means if mean is not None)
        if self.filter == "ekf":
            memory = self._track(executors, snapshot, memory)
            estimated = self._estimated(snapshot, memory)
            if estimated is None:
                return self._bootstrapping(target, memory)
            return self._sized(snapshot, *estimated, memory)
        if self.filter == "gauss":
            memory = self._kept(snapshot.at_s, executors, memory)
            measured = filters.kernel_means(
                memory.times_s,
                list(memory.past.values()),
                snapshot.at_s,
                variance_s2=self.variance_s2,
                window_s=self.window_s,
            )
        return self._stepped(snapshot, measured, memory)

    @property
    def _bands(self) -> tuple[MetricBand, ...]:
        band = self.lower_fraction, self.upper_fraction
        return metric_bands(self.metrics, *band, self.network_bytes, self.disk_bytes)

    def _start(self, before: Sequence[Snapshot], memory: FilterMemory) -> Decision | None:
        """A warm start: with what the user gives, or with the mean fleet of the last run."""
        initial, words = self.initial_executors, ""
        if initial is None and before and self.warm_start:
            used = [snapshot.fleet.active for snapshot in before]
            initial, words = max(1, round(sum(used) / len(used))), ", the mean of the last run"
        if initial is None:
            return None
        reason = Reason("warm_start", f"warm start with {count_executors(initial)}{words}")
        return Decision.of(initial, reason, memory=memory)

    def _recalled(self, knowledge: Knowledge) -> FilterMemory:
        """The memory of the last turn, unless that followed other metrics than now."""
        memory = knowledge.recall(FilterMemory)
        count = len(self._bands)
        fits = not memory.fits or len(memory.fits) == count
        past = all(len(series) == count for series in memory.past.values())
        return memory if fits and past else FilterMemory(started=memory.started)

    def _stepped(self, snapshot: Snapshot, means: Numbers, memory: FilterMemory) -> Decision:
        """One more or one fewer than were asked for, each turn again."""
        wanted = snapshot.fleet.target
        if self._is_high(means):
            wanted += 1
        elif self._is_low(means):
            wanted = max(0, wanted - 1)
        return self._decision(wanted, snapshot, means, memory)

    def _sized(
        self, snapshot: Snapshot, means: Numbers, totals: Numbers, memory: FilterMemory
    ) -> Decision:
        """As many as carry the load with each executor where it should be.

        What was asked for and has not come yet counts: it is not asked for again.
        """
        target = snapshot.fleet.target
        each = self.sized_for_fraction or self.upper_fraction
        needed = max(ceil(total / each - ROUNDING) for total in totals)
        wanted = target
        if self._is_high(means):
            wanted = max(target, needed)
        elif self._is_low(means):
            wanted = min(target, max(1, needed))
        return self._decision(wanted, snapshot, means, memory)

    def _is_high(self, means: Numbers) -> bool:
        return any(band.is_above(mean) for band, mean in zip(self._bands, means, strict=True))

    def _is_low(self, means: Numbers) -> bool:
        return all(band.is_below(mean) for band, mean in zip(self._bands, means, strict=True))

    def _decision(
        self, wanted: int, snapshot: Snapshot, means: Numbers, memory: FilterMemory
    ) -> Decision:
        fleet = snapshot.fleet
        seen = list(zip(self._bands, means, strict=True))
        if self._is_high(means):
            above = [(band, mean) for band, mean in seen if band.is_above(mean)]
            code, text = "above_threshold", compared(above, "above")
        elif self._is_low(means):
            code, text = "below_threshold", compared(seen, "below")
        else:
            code, text = "inside_band", compared(seen, "between")
        if wanted == fleet.target:
            text += f": holding {count_executors(wanted)}, {fleet.active} at work"
        else:
            text += f": {resized(fleet.target, wanted)}"
        evidence = {band.name: mean / band.scale for band, mean in seen}
        return Decision.of(wanted, Reason(code, text, evidence), memory=memory)

    def _kept(
        self, at_s: float, executors: Sequence[ExecutorSample], memory: FilterMemory
    ) -> FilterMemory:
        """The past that the kernel can see, and the present, of each executor that is there."""
        horizon_s = min(self.window_s, KERNEL_DEVIATIONS * sqrt(self.variance_s2))
        times_s = tuple(past_s for past_s in memory.times_s if at_s - past_s <= horizon_s)
        # A loop that turns faster than asked must not make the memory longer.
        times_s = times_s[-(int(horizon_s / self.period_s) + 1) :]
        if times_s and times_s[-1] >= at_s:  # the clock was set back
            times_s = ()
        bands = self._bands
        nothing: tuple[tuple[float, ...], ...] = ((),) * len(bands)
        past = {}
        for executor in executors:
            measured = [value for band in bands if (value := band.of(executor)) is not None]
            if len(measured) < len(bands):
                continue
            before = memory.past.get(executor.id, nothing) if times_s else nothing
            past[executor.id] = tuple(
                (*series[-len(times_s) :], value)
                for series, value in zip(before, measured, strict=True)
            )
        return structs.replace(memory, times_s=(*times_s, at_s), past=past)

    def _track(
        self, executors: Sequence[ExecutorSample], snapshot: Snapshot, memory: FilterMemory
    ) -> FilterMemory:
        """One turn of the filter of every executor that is there; the others are forgotten."""
        assert snapshot.arrival_rps is not None
        at_s = snapshot.at_s
        passed_s = 0.0 if memory.at_s is None else max(0.0, at_s - memory.at_s)
        arrival_rps, active = snapshot.arrival_rps, max(1, snapshot.fleet.active)
        before_rps = arrival_rps if memory.arrival_rps is None else memory.arrival_rps
        rate, change = arrival_rps / active, (arrival_rps - before_rps) / active
        growth = filters.growth_of(before_rps, arrival_rps)
        bands = self._bands
        fits = memory.fits or tuple(filters.InputFit() for _ in bands)
        effects = [(0.0, b) for b in self.rate_effects] or [fit.coefficients() for fit in fits]
        drifts = [a * rate + b * change for a, b in effects]
        tracks: dict[str, filters.ExecutorFilter] = {}
        moves: list[list[float]] = [[] for _ in bands]
        for executor in executors:
            before = memory.tracks.get(executor.id)
            measured = [value for band in bands if (value := band.of(executor)) is not None]
            if len(measured) < len(bands):
                if before is not None:
                    tracks[executor.id] = before
            elif before is None:
                estimates = tuple(filters.Estimate(z, 0.0, 0.0, z) for z in measured)
                tracks[executor.id] = filters.ExecutorFilter(0.0, 1, estimates)
            else:
                bounds = None if self.rate_effects else growth
                tracks[executor.id] = before.advanced(
                    measured, drifts, bounds, passed_s, self.noise, self.dead_time_s
                )
                for moved, old, z in zip(moves, before.estimates, measured, strict=True):
                    # Near saturation a metric no longer shows how much there is to do.
                    if z < self.upper_fraction > old.z:  # the upper threshold of all, as scaled
                        moved.append(z - old.z)
        fits = tuple(
            fit.learn(rate, change, sum(moved) / len(moved)) if moved else fit
            for fit, moved in zip(fits, moves, strict=True)
        )
        return FilterMemory(True, (), {}, at_s, arrival_rps, tracks, fits)

    def _estimated(
        self, snapshot: Snapshot, memory: FilterMemory
    ) -> tuple[Numbers, Numbers] | None:
        """Means over the trusted filters, sums over all; nothing before one can be trusted."""
        tracks, trusted_age_s = memory.tracks.values(), self.dead_time_s + self.ease_in_s
        trusted = [track for track in tracks if track.age_s >= trusted_age_s]
        if not trusted or (self.waits_for_newcomers and len(trusted) < len(tracks)):
            return None
        # Executors at work that no one measured carry as much as the others.
        scale = max(1.0, snapshot.fleet.active / len(tracks))
        metrics = range(len(self._bands))
        means = [sum([track.estimates[k].x for track in trusted]) / len(trusted) for k in metrics]
        totals = [sum([track.estimates[k].x for track in tracks]) * scale for k in metrics]
        return tuple(means), tuple(totals)

    def _bootstrapping(self, target: int, memory: FilterMemory) -> Decision:
        first_or_last = min if self.waits_for_newcomers else max
        age_s = first_or_last((track.age_s for track in memory.tracks.values()), default=0.0)
        needed_s = self.dead_time_s + self.ease_in_s
        why = f"the filter has run {age_s:g} of {needed_s:g} s"
        return hold(target, "bootstrapping", why, {"age_s": age_s}, memory)
