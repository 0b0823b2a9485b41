"""What the page shows of one job: kept turn by turn, and drawn together when somebody looks."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import (
    Decision,
    ExecutorSample,
    Limits,
    OperatorSample,
    Outlook,
    Reason,
    Snapshot,
    Step,
)
from penstock.core.phrases import rate
from penstock.observe.dashboard.limit import limit_now
from penstock.observe.metrics import (
    RECOMMENDED,
    MetricTotals,
    Values,
    fold,
    recommended_account,
)
from penstock.observe.report.account import rows
from penstock.observe.report.series import begin_s, lines
from penstock.settings.goal import Goal

#: Turns that the charts reach back: half a day of the default policy, about a kilobyte each.
KEPT_TURNS = 4320
MOST_POINTS = 600
MOST_ROWS = 150
#: Turns and rows of the heat maps.
HEAT_TURNS, HEAT_ROWS = 60, 64


class HeatRow(Struct, frozen=True):
    """How busy an executor or a stage was at the last turns, oldest first, and more of the last."""

    name: str
    values: list[float | None]
    text: str


class OutlookLines(Struct, frozen=True):
    """What is expected, at seconds since the start of the run; the first instant is now."""

    at_s: list[float]
    load: list[float]
    low: list[float]
    high: list[float]
    executors: list[int]


class SizeRow(Struct, frozen=True):
    """What a size of the fleet would cost up to the horizon, and which share would be late."""

    executors: int
    executor_hours: float
    money: str
    late_fraction: float


class WatchedJob:
    """One job and its last turns. `take` is cheap; threads of the server call the others."""

    def __init__(
        self, key: str, name: str, state: Callable[[], str] | None = None, policy: str = ""
    ) -> None:
        self.key, self.name, self.policy = key, name, policy
        self.limits, self.goal = Limits(), Goal()
        self._state = state or (lambda: "")
        self._lock = threading.Lock()
        self.version = 0
        self._drawn: tuple[int, bytes] = (-1, b"null")
        self.forget()

    def forget(self) -> None:
        """Start from nothing: another run has taken the place of this one."""
        self._steps: deque[Step] = deque(maxlen=KEPT_TURNS)
        self._whole: deque[Step] = deque(maxlen=HEAT_TURNS)
        self._totals, self._since_s, self._acts = MetricTotals(), 0.0, True

    @property
    def last_at_s(self) -> float:
        return self._steps[-1].at_s if self._steps else -1.0

    def take(self, step: Step) -> None:
        """One more turn; one that is known already is ignored."""
        with self._lock:
            if step.at_s <= self.last_at_s:
                return
            if not self._steps:
                self._since_s = step.at_s
            if step.receipt is not None:
                self._acts = step.receipt.text != RECOMMENDED
            self._totals = fold(self._totals, step, self.limits, self.goal, acts=self._acts)
            self._steps.append(slim(step))
            self._whole.append(step)
            self.version += 1

    def summary(self) -> dict[str, Any]:
        """The job as an entry of the list of jobs."""
        with self._lock:
            recent = list(self._whole)
        found = {"id": self.key, "name": self.name, "state": self._state()}
        seen = next((step.snapshot for step in reversed(recent) if step.snapshot), None)
        measured = ("fleet", "arrival_rps", "delay_s", "backlog_records")
        return found | {
            "slo_s": self.goal.slo_s,
            "at_s": recent[-1].at_s if recent else None,
            "limit": limit_now(recent, self.limits.max_executors).name if recent else "",
            **{name: getattr(seen, name, None) for name in measured},
        }

    def drawn(self) -> bytes:
        """The view as JSON, ``null`` before the first turn; made once for all who look."""
        with self._lock:
            version, steps, whole = self.version, list(self._steps), list(self._whole)
            totals = self._totals.values
        if steps and self._drawn[0] != version:
            self._drawn = version, msgspec.json.encode(self._view(steps, whole, totals))
        return self._drawn[1] if steps else b"null"

    def _view(self, steps: Sequence[Step], whole: Sequence[Step], totals: Values) -> dict[str, Any]:
        """All that the page shows of the job. Instants are seconds since `begin_s`."""
        zero_s, last = begin_s(steps), whole[-1]
        ahead, limits, goal = last.decision.outlook, self.limits, self.goal
        seen = [step.snapshot for step in whole if step.snapshot is not None]
        return {
            "id": self.key,
            "policy": self.policy,
            "begin_s": zero_s,
            "now_s": round(last.at_s - zero_s, 2),
            "slo_s": goal.slo_s,
            "min_executors": limits.min_executors,
            "max_executors": limits.max_executors,
            "lines": lines(steps, MOST_POINTS),
            "outlook": None if ahead is None else outlook_lines(last, ahead, zero_s),
            "horizon_s": 0.0 if ahead is None else ahead.ahead_s[-1],
            "sizes": [] if ahead is None else size_rows(ahead, goal),
            "limit": limit_now(whole, limits.max_executors),
            "executors": executor_heat(seen),
            "stages": stage_heat(seen),
            "account": {
                "since_s": self._since_s,
                "recommended": "" if self._acts else recommended_account(totals, goal),
                **account_of(totals, goal),
            },
            "rows": rows(steps)[-MOST_ROWS:],
        }


def slim(step: Step) -> Step:
    """A step without what only the last turns show: executors, stages, batches, evidence."""
    seen, decision = step.snapshot, step.decision
    if seen is not None:
        empty = ("batches", "executors", "operators", "partition_backlog_records", "topics")
        seen = replace(seen, **dict.fromkeys(empty, ()))
    reasons = tuple(Reason(each.code, each.text) for each in decision.reasons)
    sizes = decision.target_executors, reasons, decision.wanted_executors
    return Step(step.at_s, seen, Decision(*sizes, decision.expected_rps), step.receipt)


def outlook_lines(step: Step, ahead: Outlook, zero_s: float) -> OutlookLines:
    """The curves from now on: they begin at what is seen now."""
    seen = step.snapshot
    load = ahead.load_rps[0] if seen is None or seen.arrival_rps is None else seen.arrival_rps
    planned = [step.decision.target_executors, *ahead.executors] if ahead.executors else []
    return OutlookLines(
        [round(step.at_s - zero_s + after_s, 2) for after_s in (0.0, *ahead.ahead_s)],
        [load, *ahead.load_rps],
        [load, *ahead.low_rps],
        [load, *ahead.high_rps],
        planned,
    )


def size_rows(ahead: Outlook, goal: Goal) -> list[SizeRow]:
    """What each size would cost and how late it would be.

    Eight executors for a quarter of an hour are two executor-hours:

    >>> ahead = Outlook((900.0,), (50.0,), (40.0,), (60.0,), (8,), (8,), (0.01,))
    >>> size_rows(ahead, Goal(price=0.5, currency="EUR"))[0]
    SizeRow(executors=8, executor_hours=2.0, money='1.00 EUR', late_fraction=0.01)
    """
    found = []
    for size, late in zip(ahead.sizes, ahead.late_fractions, strict=True):
        hours = size * ahead.ahead_s[-1] / 3600.0
        found.append(SizeRow(size, hours, goal.money(hours) if goal.is_priced else "", late))
    return found


def account_of(totals: Values, goal: Goal) -> dict[str, Any]:
    """What was paid, saved against `max_executors` all the time, and late: from the counters."""
    found: dict[str, Any] = {}
    for name, counter in (
        ("paid", "executor_seconds_total"),
        ("saved", "saved_executor_seconds_total"),
    ):
        hours = totals.get((counter,), 0.0) / 3600.0
        found[f"{name}_executor_hours"] = hours
        found[name] = goal.money(hours) if goal.is_priced else ""
    records, late = (totals.get((f"{name}_total",), 0.0) for name in ("records", "late_records"))
    return found | {"records": records, "late_fraction": late / records if records else None}


def executor_heat(seen: Sequence[Snapshot]) -> list[HeatRow]:
    """How busy each executor was; those that are there now."""

    def busy(one: ExecutorSample) -> float | None:
        return one.cpu_fraction if one.busy_fraction is None else one.busy_fraction

    def text(one: ExecutorSample) -> str:
        shares = {"cpu": one.cpu_fraction, "heap": one.memory_fraction, "gc": one.gc_fraction}
        words = [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
        words += [] if one.throughput_rps is None else [rate(one.throughput_rps)]
        return ", ".join(words if one.ready else ["starts or leaves", *words])

    past = [{one.id: busy(one) for one in each.executors} for each in seen]
    now = sorted(seen[-1].executors, key=lambda one: (len(one.id), one.id)) if seen else []
    return [_row(one.id, text(one), past) for one in now[:HEAT_ROWS]]


def stage_heat(seen: Sequence[Snapshot]) -> list[HeatRow]:
    """How busy each stage (Spark) or operator kept the slots."""

    def text(one: OperatorSample) -> str:
        words = [] if one.tasks is None else [f"{one.tasks} tasks"]
        return ", ".join([*words, *([] if one.input_rps is None else [rate(one.input_rps)])])

    past = [{one.name: one.busy_fraction for one in each.operators} for each in seen]
    # Between two batches no stage has run: those of the last turn that had some.
    now = next((each.operators for each in reversed(seen) if each.operators), ())
    return [_row(one.name, text(one), past) for one in now[:HEAT_ROWS]]


def _row(name: str, text: str, past: Iterable[dict[str, float | None]]) -> HeatRow:
    values = (each.get(name) for each in past)
    return HeatRow(name, [None if value is None else round(value, 3) for value in values], text)
