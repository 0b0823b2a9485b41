"""What the demo runs: sizes, paces and the load."""

import dataclasses
import os
from collections.abc import Set
from math import cos, pi
from typing import Any

import msgspec
from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import PolicySpec, read_policy_spec
from penstock.testbed.clusters import ClusterKind
from penstock.testbed.cpu_share import check_share, find_controller
from penstock.testbed.jobs.benchmark_jobs import JOBS, find_job

TOPIC = "events"
SLO_S = 10.0
TRIGGER_S = 2.0
STATE_PARTITIONS = 6
MAX_EXECUTORS = 8
#: Each new executor takes seconds of a processor to start: more of them at once, or again sooner,
#: would starve the job on a small machine.
MAX_STEP = 2
LEAST_COOLDOWN_S = 8.0
#: Not every record waits, but one of several for all of them: on a busy machine each waking up
#: comes a millisecond or more late, which would be most of a short wait.
WAITING_TOGETHER = 20
LONGEST_WAIT_S = 0.02
#: Of what executors with a share of a core do. A task takes 0.1 s of processor time besides its
#: records, which is nothing where records wait, and a third of the work where they compute.
RECORDS_SHARE = 2 / 3
#: Of what executors of a heavy job do: four of them, so that few have to start on a busy machine.
HEAVY_SHARE = 0.45
#: A share of the lowest load: enough to compile code, too little to leave a backlog behind.
WARM_UP_SHARE = 0.25
FULL_WAVE_S = 160.0  #: A wave that is shorter than this rises less high.

DEFAULT_MINUTES = 5.0
FAST_MINUTES = 1.35
SHORTEST_MINUTES, LONGEST_MINUTES = 0.5, 24 * 60.0

#: Time spans by which policies and guards wait or look back. Here minutes stand for hours, so they
#: are divided; what a policy allows records to wait is none of them and stays.
_SPAN_NAMES = (
    "bin_s blacklist_s catch_up_s cooldown_s cpu_initialization_s dead_time_s ease_in_s grace_s "
    "idle_timeout_s initial_readiness_delay_s lasting_s loop_s metric_window_s min_lifetime_s "
    "recovery_target_s scale_down_interval_s stabilization_s stabilize_down_s stabilize_up_s "
    "wait_s window_s"
)
SPANS = frozenset(_SPAN_NAMES.split())
PRICES = frozenset({"move_price"})  #: What a move costs is a span as well: executor-hours.


class DemoPlan(Struct, frozen=True):
    """A demo: which job, for how long, and how often Penstock decides.

    The load starts low, comes to its peak in the middle and goes down again:

    >>> rates = DemoPlan("q11", 200).rates_rps()
    >>> len(rates), round(rates[0]), round(max(rates)), round(rates[-1])
    (200, 400, 3400, 400)
    """

    job: str = "q11"
    load_s: int = round(60 * DEFAULT_MINUTES)
    full_peak_rps: float | None = None  #: Of a wave that is long enough.
    cpu_share: float | None = None  #: With one, records compute, and do not wait.
    cluster: ClusterKind = "standalone"

    @property
    def topics(self) -> dict[str, str]:
        streams = find_job(self.job).streams
        return {each: TOPIC if len(streams) == 1 else f"{TOPIC}-{each}" for each in streams}

    @property
    def heavy(self) -> bool:
        """Whether the tasks of a batch take one executor too long: then it is made easier."""
        return find_job(self.job).heavy

    @property
    def partitions(self) -> int:
        """Of each topic; fewer with a share of a core, where each task takes 0.1 s besides.

        A source that a heavy job reads twice has half as many:

        >>> DemoPlan("q11").partitions, DemoPlan("q3").partitions
        (12, 6)
        """
        job = find_job(self.job)
        wanted = job.partitions // job.reads if self.heavy else job.partitions
        return wanted if self.cpu_share is None else min(wanted, MAX_EXECUTORS)

    @property
    def nodes(self) -> int:
        """Of the cluster: one, or two where machines come and go."""
        return 1 if self.cluster == "standalone" else 2

    @property
    def start_executors(self) -> int:
        """The fleet at the start; more where one executor takes too long for its tasks alone."""
        if self.cpu_share is not None:
            return 3
        return 2 if self.heavy else 1

    @property
    def trigger_s(self) -> float:
        """The time between batches; longer where tasks take much of it besides their records."""
        return TRIGGER_S if self.cpu_share is None and not self.heavy else 2 * TRIGGER_S

    @property
    def pace_s(self) -> float:
        """How long each record of a source waits; q3 reads its source twice and waits twice."""
        job = find_job(self.job)
        return job.demo.pace_s / job.reads if self.cpu_share is None else 0.0

    @property
    def record_s(self) -> float:
        """How long a record keeps an executor: it waits and computes, or only computes.

        >>> [DemoPlan("images-recognise", cpu_share=share).record_s for share in (None, 0.2)]
        [0.05, 0.05]
        """
        job = find_job(self.job)
        if self.cpu_share is None:
            return job.demo.pace_s + job.compute_s
        return job.compute_s / self.cpu_share

    @property
    def work(self) -> str:
        """What a record does, for people.

        >>> DemoPlan("q11").work, DemoPlan("images-store", cpu_share=0.2).work
        ('each record waits 1 ms', 'executors compute, each with 0.2 of a core')
        """
        if self.cpu_share is None:
            return f"each record waits {self.pace_s * 1e3:g} ms"
        return f"executors compute, each with {self.cpu_share:g} of a core"

    @property
    def waiting_together(self) -> int:
        """One record in this many waits for all of them.

        >>> DemoPlan("q11").waiting_together, DemoPlan("images-store").waiting_together
        (20, 1)
        """
        if self.pace_s == 0.0:
            return 1
        return min(WAITING_TOGETHER, max(1, round(LONGEST_WAIT_S / self.pace_s)))

    @property
    def low_rps(self) -> float:
        """The load before and after the wave."""
        return self._suited_rps(find_job(self.job).demo.low_rps)

    @property
    def warm_up_rps(self) -> float:
        return WARM_UP_SHARE * self.low_rps

    @property
    def every_s(self) -> float:
        return min(10.0, max(3.0, self.load_s / 60))

    @property
    def speed(self) -> float:
        """How much faster than in real life time passes.

        Half-minute bins become 6 s in a demo of five minutes; an hour is kept as it is.

        >>> [round(DemoPlan("q11", 60 * minutes).speed, 1) for minutes in (1, 5, 10, 60)]
        [10.0, 6.0, 3.0, 1.0]
        """
        return min(10.0, max(1.0, 1800.0 / self.load_s))

    @property
    def peak_rps(self) -> float:
        """The top of the load: lower in a short demo, since executors take seconds to start.

        >>> [round(DemoPlan("q11", load_s).peak_rps) for load_s in (81, 180, 300)]
        [1900, 3400, 3400]
        """
        full_rps = self.full_peak_rps or self._suited_rps(find_job(self.job).demo.peak_rps)
        rise = (full_rps - self.low_rps) * min(1.0, self.load_s / FULL_WAVE_S)
        return self.low_rps + round(rise, -2 if rise > 1000.0 else 0)

    def _suited_rps(self, paced_rps: float) -> float:
        """The rate that needs as large a fleet as this one does with records that wait."""
        if self.cpu_share is None:
            return round(HEAVY_SHARE * paced_rps, -1) if self.heavy else paced_rps
        waiting_s = msgspec.structs.replace(self, cpu_share=None).record_s
        return round(RECORDS_SHARE * paced_rps * waiting_s / self.record_s, 1)

    @property
    def description(self) -> str:
        return f"wave of {self.load_s} s, {self.low_rps:g} to {self.peak_rps:g} records/s"

    def rates_rps(self) -> list[float]:
        """The load of each second: a tenth of the time low, one wave, and low again."""
        head, wave = self.load_s // 10, round(0.72 * self.load_s)
        low, rise = self.low_rps, (self.peak_rps - self.low_rps) / 2
        hump = [low + rise * (1 - cos(2 * pi * (at + 0.5) / wave)) for at in range(wave)]
        return [low] * head + hump + [low] * (self.load_s - head - wave)


def make_plan(
    job: str,
    minutes: float | None,
    fast: bool,
    cpu_share: float | None = None,
    cluster: ClusterKind = "standalone",
) -> DemoPlan:
    """The demo that was asked for, or what is wrong with the request.

    >>> make_plan("q11", None, fast=True).load_s
    81
    """
    find_job(job).check_packages()
    if fast and minutes is not None:
        raise ConfigError("--fast is a length: give it or --minutes, not both")
    length = minutes if minutes is not None else FAST_MINUTES if fast else DEFAULT_MINUTES
    if not SHORTEST_MINUTES <= length <= LONGEST_MINUTES:
        bounds = f"{SHORTEST_MINUTES:g} and {LONGEST_MINUTES:g}"
        raise ConfigError(f"--minutes must be between {bounds}, not {length:g}")
    if cpu_share is not None:
        if cluster != "standalone":
            raise ConfigError(f"--cpu-share needs --cluster standalone, not {cluster}")
        check_share(cpu_share, MAX_EXECUTORS, os.cpu_count() or 1)
        if not find_job(job).compute_s:
            able = ", ".join(name for name, each in JOBS.items() if each.compute_s)
            raise ConfigError(
                f"--cpu-share needs a job that computes: records of {job} cost next to nothing, so "
                f"they wait instead; take one of {able}"
            )
        find_controller()
    return DemoPlan(job, round(60 * length), cpu_share=cpu_share, cluster=cluster)


def with_scaled_time(text: str, plan: DemoPlan) -> PolicySpec:
    """A policy in the demo's time: its spans and those of its guards divided by the speed.

    What the text itself says is taken as it is.

    >>> plan = DemoPlan("q11", 300)
    >>> entry = with_scaled_time("ds2", plan)
    >>> entry.policy.window_s, entry.limits.cooldown_s
    (10.0, 40.0)
    >>> with_scaled_time("ds2:cooldown=60s", plan).limits.cooldown_s
    60.0
    """
    least = 2 if plan.heavy else 1
    bounds = {"min_executors": least, "max_executors": MAX_EXECUTORS, "max_step": MAX_STEP}
    entry = read_policy_spec(text, bounds, Goal(slo_s=SLO_S))
    policy: Any = entry.policy
    own = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
    changed = _divided(msgspec.structs.asdict(entry.limits), entry.given, plan)
    if "cooldown_s" in changed:
        changed["cooldown_s"] = max(LEAST_COOLDOWN_S, changed["cooldown_s"])
    return PolicySpec(
        entry.label,
        dataclasses.replace(policy, **_divided(own, entry.given, plan)),
        msgspec.structs.replace(entry.limits, **changed),
    )


def _divided(values: dict[str, Any], given: Set[str], plan: DemoPlan) -> dict[str, float]:
    found = {}
    for name in (SPANS | PRICES) & (values.keys() - given):
        # A window in which nothing is measured would blind the policy.
        least = min(values[name], plan.every_s) if name in SPANS else 0.0
        found[name] = max(values[name] / plan.speed, least)
    return found
