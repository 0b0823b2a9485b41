"""The values of the loop: what a sensor reads, what a policy decides, what the journal keeps.

All are frozen. ``None`` means "not measured", never zero. Numbers that no instrument can have
measured (NaN, infinite, negative) are refused here, so that no other code has to check for them.

Units are in the names: ``_s`` seconds, ``_at_s`` seconds since the epoch, ``_rps`` records per
second, ``_records``, ``_bytes``, ``_fraction`` (of one; a fraction of requested cpu may exceed 1).

>>> Fleet(target=4, registered=3, active=3)
Fleet(target=4, registered=3, active=3, cores_per_executor=1)
>>> ExecutorSample("1", started_at_s=0.0, cpu_fraction=float("nan"))
Traceback (most recent call last):
penstock.core.errors.ModelError: ExecutorSample.cpu_fraction must be finite and not negative, not
    nan
"""

from __future__ import annotations

from math import inf
from typing import Any

from msgspec import Struct, structs

from penstock.core import phrases
from penstock.core.errors import ModelError
from penstock.core.schedule import ScheduledLimit


class Fleet(Struct, frozen=True, gc=False, omit_defaults=True):
    """The size of the fleet: what was asked for, what is there, what works.

    A rule sizes from `target`: it holds by returning `target`, and executors that are still
    starting are in it, so they are not asked for twice. What was measured (throughput, cpu) came
    from the `active` ones: divide by those.

    Parameters
    ----------
    target: The size that was last asked for; before anybody asked, what is registered.
    registered: Executors that the scheduler knows: more than `target` while some are leaving.
    active: Those that take tasks now: neither leaving nor lost. 0 while a continuous job restarts.
    cores_per_executor: Tasks that one executor runs at a time.
    """

    target: int
    registered: int
    active: int
    cores_per_executor: int = 1

    def __post_init__(self) -> None:
        if self.target < 0 or self.registered < 0 or self.active < 0 or self.cores_per_executor < 1:
            raise _refusal(self)


class BatchStage(Struct, frozen=True, gc=False, array_like=True):
    """A stage of a micro-batch: what its tasks took, and when it ran."""

    tasks: int
    work_s: float  #: Core-seconds of all its tasks, failed ones too: to load code and to run.
    begin_s: float  #: From the start of the batch, as `end_s`.
    end_s: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.work_s < inf and 0.0 <= self.begin_s <= self.end_s < inf) or (
            self.tasks < 1
        ):
            raise _refusal(self)


class Batch(Struct, frozen=True, gc=False, omit_defaults=True, repr_omit_defaults=True):
    """A micro-batch that was committed."""

    id: int
    started_at_s: float
    duration_s: float
    input_records: int
    phases: dict[str, float] = {}  #: Seconds, by Spark's names of them.
    observed: dict[str, float] = {}  #: By ``DataFrame.observe``: ``{"input.malformed": 3.0}``.
    stages: tuple[BatchStage, ...] = ()  #: As they began; empty if they were not measured.

    def __post_init__(self) -> None:
        if not (0.0 <= self.started_at_s < inf and 0.0 <= self.duration_s < inf) or (
            self.input_records < 0
        ):
            raise _refusal(self)


class ExecutorSample(Struct, frozen=True, gc=False, omit_defaults=True):
    """One executor over the last interval; simulations make thousands per second, by position."""

    id: str
    started_at_s: float
    ready: bool = True  #: False while it starts or leaves.
    cpu_fraction: float | None = None
    busy_fraction: float | None = None
    memory_fraction: float | None = None
    throughput_rps: float | None = None
    state_partitions: int | None = None
    network_bytes_per_s: float | None = None  #: What shuffles read and write.
    disk_bytes_per_s: float | None = None  #: What is read from it and spilled to it.
    gc_fraction: float | None = None  #: Of the time of its tasks.

    def __post_init__(self) -> None:
        if not (
            0.0 <= self.started_at_s < inf
            and ((x := self.cpu_fraction) is None or 0.0 <= x < inf)
            and ((x := self.busy_fraction) is None or 0.0 <= x < inf)
            and ((x := self.memory_fraction) is None or 0.0 <= x < inf)
            and ((x := self.throughput_rps) is None or 0.0 <= x < inf)
            and ((x := self.state_partitions) is None or x >= 0)
            and ((x := self.network_bytes_per_s) is None or 0.0 <= x < inf)
            and ((x := self.disk_bytes_per_s) is None or 0.0 <= x < inf)
            and ((x := self.gc_fraction) is None or 0.0 <= x < inf)
        ):
            raise _refusal(self)


class OperatorSample(Struct, frozen=True, gc=False, omit_defaults=True):
    """One operator (Flink) or stage (Spark) over the last interval.

    Rates and backlog are sums over its instances; fractions are means over them.
    `tasks` is how many instances it runs as.

    Operators of a continuous engine run side by side, each in slots of its own. Stages of
    micro-batches take turns on the same slots: `busy_fraction` is then a share of the time of all
    slots, which adds up over the stages, and `idle_fraction`, the same for each stage, is the share
    in which no stage ran. A stage never waits for the next one: it has no backpressure (``None``).
    """

    name: str
    upstream: tuple[str, ...] = ()
    input_rps: float | None = None
    output_rps: float | None = None
    busy_fraction: float | None = None
    backpressured_fraction: float | None = None
    idle_fraction: float | None = None
    backlog_records: float | None = None
    service_time_s: float | None = None
    service_cv2: float | None = None
    arrival_cv2: float | None = None
    tasks: int | None = None

    def __post_init__(self) -> None:
        if not (
            ((x := self.input_rps) is None or 0.0 <= x < inf)
            and ((x := self.output_rps) is None or 0.0 <= x < inf)
            and ((x := self.busy_fraction) is None or 0.0 <= x < inf)
            and ((x := self.backpressured_fraction) is None or 0.0 <= x < inf)
            and ((x := self.idle_fraction) is None or 0.0 <= x < inf)
            and ((x := self.backlog_records) is None or 0.0 <= x < inf)
            and ((x := self.service_time_s) is None or 0.0 <= x < inf)
            and ((x := self.service_cv2) is None or 0.0 <= x < inf)
            and ((x := self.arrival_cv2) is None or 0.0 <= x < inf)
            and ((x := self.tasks) is None or x >= 0)
        ):
            raise _refusal(self)


class TopicSample(Struct, frozen=True, gc=False, omit_defaults=True):
    """What waits for one query at one topic; `topic` is empty for a source that has none."""

    query: str
    topic: str = ""
    backlog_records: float | None = None
    delay_s: float | None = None

    def __post_init__(self) -> None:
        if not (0.0 <= (self.backlog_records or 0.0) < inf and 0.0 <= (self.delay_s or 0.0) < inf):
            raise _refusal(self)


class QuerySample(Struct, frozen=True, gc=False, omit_defaults=True):
    """One query of several that share a fleet, over the last interval."""

    name: str
    slo_s: float | None = None  #: Its own, if it has one.
    weight: float = 1.0  #: What its late records cost against those of others.
    excluded: bool = False  #: Not scaled for; the slots that it uses count all the same.
    arrival_rps: float | None = None
    throughput_rps: float | None = None
    delay_s: float | None = None
    busy_slots: float | None = None  #: How many its tasks used in the mean.

    def __post_init__(self) -> None:
        measured = self.slo_s, self.arrival_rps, self.throughput_rps, self.delay_s, self.busy_slots
        if not all(0.0 <= (x or 0.0) < inf for x in (self.weight, *measured)):
            raise _refusal(self)


class _Instant(Struct, frozen=True, gc=False, omit_defaults=True):
    """The two fields of a snapshot that may be given without their names."""

    at_s: float
    fleet: Fleet


class Snapshot(_Instant, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What was read of one job at one instant. ``None`` is what was not measured.

    Parameters
    ----------
    at_s, fleet: When it was read, and the size of the fleet then.
    trigger_interval_s: Seconds between the starts of micro-batches; ``None`` where the next batch
        starts at once, and for a continuous engine.
    batches: The micro-batches that were committed since the previous snapshot that could be read,
        oldest first. Empty if none was committed in that time, and for a continuous engine: that
        says nothing about the load. Of several queries, those of the first of `queries`.
    arrival_rps, throughput_rps: Means since the previous snapshot: records that arrived, records of
        committed batches.
    backlog_records: Records that have arrived and are not yet processed.
    partition_backlog_records: The same by partition, in the order of topic and partition; empty if
        it was not measured.
    delay_s: The age of the oldest of them (event-time lag).
    mean_delay_s: The mean over partitions of the age of the oldest record that waits in each.
    latency_s: The time that the last processed records took inside the job: for micro-batches, the
        duration of the last one.
    executors, operators: One sample each. Empty if they were not measured.
    partitions: The largest number of tasks that can run at once.
    state_bytes: State that the job keeps.
    checkpoint_interval_s: Seconds between checkpoints of a continuous engine.
    clock_ahead_s: How far the wall clock is ahead of `at_s`: not 0 after it was set to another
        time.
    topics: What waits by query and topic. Empty if it was not measured.
    queries: If there are several, or one with settings of its own: the one nearest to missing its
        SLO first. Trigger, batches, delay and latency are those of that one; rates and backlogs are
        sums over those that are not excluded.
    """

    trigger_interval_s: float | None = None
    batches: tuple[Batch, ...] = ()
    arrival_rps: float | None = None
    throughput_rps: float | None = None
    backlog_records: float | None = None
    delay_s: float | None = None
    latency_s: float | None = None
    executors: tuple[ExecutorSample, ...] = ()
    operators: tuple[OperatorSample, ...] = ()
    partitions: int | None = None
    state_bytes: float | None = None
    checkpoint_interval_s: float | None = None
    mean_delay_s: float | None = None
    partition_backlog_records: tuple[int, ...] = ()
    clock_ahead_s: float = 0.0
    topics: tuple[TopicSample, ...] = ()
    queries: tuple[QuerySample, ...] = ()

    def __post_init__(self) -> None:
        if not (
            0.0 <= self.at_s < inf
            and -inf < self.clock_ahead_s < inf
            and ((x := self.trigger_interval_s) is None or 0.0 <= x < inf)
            and ((x := self.arrival_rps) is None or 0.0 <= x < inf)
            and ((x := self.throughput_rps) is None or 0.0 <= x < inf)
            and ((x := self.backlog_records) is None or 0.0 <= x < inf)
            and ((x := self.delay_s) is None or 0.0 <= x < inf)
            and ((x := self.latency_s) is None or 0.0 <= x < inf)
            and ((x := self.partitions) is None or x >= 1)
            and ((x := self.state_bytes) is None or 0.0 <= x < inf)
            and ((x := self.checkpoint_interval_s) is None or 0.0 <= x < inf)
            and ((x := self.mean_delay_s) is None or 0.0 <= x < inf)
            and (not self.partition_backlog_records or min(self.partition_backlog_records) >= 0)
        ):
            raise _refusal(self)


class Reason(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why: a code for machines, a sentence for people, and the numbers that were used."""

    code: str
    text: str
    evidence: dict[str, float] = {}


class Outlook(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a policy expects from now on, for people to look at."""

    ahead_s: tuple[float, ...]  #: The instants, in seconds from now.
    load_rps: tuple[float, ...]  #: The load expected at each.
    low_rps: tuple[float, ...]  #: Of 10 loads, 8 would lie between this
    high_rps: tuple[float, ...]  #: and this.
    executors: tuple[int, ...] = ()  #: The fleet planned at each; empty where there is no plan.
    sizes: tuple[int, ...] = ()  #: Other sizes of the fleet,
    late_fractions: tuple[float, ...] = ()  #: and the share of records late with each until then.


class Decision(Struct, frozen=True, omit_defaults=True):
    """How many executors there should be, and why; holding is a decision too.

    `wanted_executors` is what the policy recommends. Guards may override `target_executors`, and
    each that does adds its reason. `expected_rps` is what the policy expects the fleet to process,
    to be checked later. `memory` is what the policy gets back next turn, `outlook` what it expects.

    >>> wanted = Decision.of(20, Reason("load_rises", "load rises to 9 k/s"))
    >>> overridden = wanted.limited_to(16, Reason("max_executors", "16 is the most allowed"))
    >>> overridden.wanted_executors, overridden.target_executors
    (20, 16)
    >>> [reason.code for reason in overridden.reasons]
    ['load_rises', 'max_executors']
    """

    target_executors: int
    reasons: tuple[Reason, ...]
    wanted_executors: int
    expected_rps: float | None = None
    memory: Any = None
    outlook: Outlook | None = None

    def __post_init__(self) -> None:
        if self.target_executors < 0 or self.wanted_executors < 0 or not self.reasons:
            raise _refusal(self)

    @classmethod
    def of(
        cls,
        target_executors: int,
        *reasons: Reason,
        expected_rps: float | None = None,
        memory: Any = None,
        outlook: Outlook | None = None,
    ) -> Decision:
        """A policy's own decision, before any guard has seen it."""
        return cls(target_executors, reasons, target_executors, expected_rps, memory, outlook)

    def limited_to(self, target_executors: int, reason: Reason) -> Decision:
        """The same decision with another target; what the policy wanted, and why, stays in it."""
        reasons = (*self.reasons, reason)
        return structs.replace(self, target_executors=target_executors, reasons=reasons)


class Receipt(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the actuator answered."""

    accepted: bool
    text: str = ""


class Step(Struct, frozen=True, omit_defaults=True):
    """One turn of the loop, one line of the journal. A blind turn has no snapshot."""

    at_s: float
    snapshot: Snapshot | None
    decision: Decision
    receipt: Receipt | None = None


#: The largest fleet, and the most limits of a schedule: each is looked at in every turn.
MOST_EXECUTORS, MOST_SCHEDULED = 10_000, 200


class Limits(
    Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """What the guards enforce. A policy ships the values of its paper; the user may change them.

    Parameters
    ----------
    min_executors, max_executors: Bounds of the fleet, both included.
    cooldown_s: No rescale this soon after the last one.
    stabilize_up_s, stabilize_down_s: Grow to the smallest, shrink to the largest recommendation of
        that many past seconds.
    min_lifetime_s: The fleet does not shrink this soon after it has grown: an executor that was
        started is paid for, and may be needed again.
    billing_s: Executors are paid for in whole spans of this: one leaves only shortly before its
        span ends; 0 pays by the second.
    max_step: Largest change of one rescale, in executors; ``None`` is unlimited.
    dead_band_fraction: Changes smaller than this fraction of the fleet are not worth a rescale.
    max_age_s: Older measurements than this are not acted upon.
    schedule: Floors, ceilings and quiet periods that hold at certain times.
    max_executor_hours_per_day: The fleet of a day (UTC) uses no more than this, as far as
        `min_executors` allows; ``None`` is unlimited.
    """

    min_executors: int = 1
    max_executors: int = 16
    cooldown_s: float = 0.0
    stabilize_up_s: float = 0.0
    stabilize_down_s: float = 0.0
    max_step: int | None = None
    dead_band_fraction: float = 0.0
    max_age_s: float = 120.0
    schedule: tuple[ScheduledLimit, ...] = ()
    min_lifetime_s: float = 0.0
    billing_s: float = 0.0
    max_executor_hours_per_day: float | None = None

    def __post_init__(self) -> None:
        if self.min_executors < 0:
            raise ModelError(f"min_executors must be at least 0, not {self.min_executors}")
        if not max(1, self.min_executors) <= self.max_executors <= MOST_EXECUTORS:
            raise ModelError(
                f"max_executors must be at least min_executors ({self.min_executors}) and 1, and "
                f"at most {MOST_EXECUTORS}, not {self.max_executors}"
            )
        if len(self.schedule) > MOST_SCHEDULED:
            raise ModelError(
                f"a schedule has at most {MOST_SCHEDULED} entries, not {len(self.schedule)}"
            )
        if self.max_step is not None and self.max_step < 1:
            raise ModelError(f"max_step must be at least 1, not {self.max_step}")
        for name in (
            "cooldown_s", "stabilize_up_s", "stabilize_down_s", "dead_band_fraction",
            "min_lifetime_s", "billing_s",
        ):  # fmt: skip
            if not 0.0 <= (value := getattr(self, name)) < inf:
                raise ModelError(f"{name} must be finite and not negative, not {value}")
        for name in ("max_age_s", "max_executor_hours_per_day"):
            if (value := getattr(self, name)) is not None and not value > 0.0:
                raise ModelError(f"{name} must be positive, not {value}")
        for each in self.schedule:
            each.check_bounds(self.min_executors, self.max_executors)


def not_measured(executors: int, *names: str, memory: Any = None) -> Decision:
    """Hold, because what the rule needs was not measured.

    >>> not_measured(3, "arrival_rps").reasons[0].text
    'holding 3 executors: arrival_rps not measured'
    """
    text = f"holding {phrases.executors(executors)}: {', '.join(names)} not measured"
    return Decision.of(executors, Reason("not_measured", text), memory=memory)


def _refusal(value: Struct) -> ModelError:
    """The sentence for the first field of `value` that cannot have been measured."""
    kind = type(value).__name__
    for name in value.__struct_fields__:
        number = getattr(value, name)
        if isinstance(number, int | float) and not 0 <= number < inf:
            return ModelError(f"{kind}.{name} must be finite and not negative, not {number}")
    return ModelError(f"{kind} is not complete: {value}")
