"""What was seen and done so far: a fold over the journal, of bounded size.

The controller writes it; policies and guards read it. A restarted controller rebuilds it from the
last steps of the journal, and continues where the last one stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from penstock.core.model import Limits, Snapshot, Step

Memory = TypeVar("Memory", bound=Struct)
SnapshotMetric = Callable[[Snapshot], float | None]  #: ``None`` where it was not measured.

#: How much past is kept: enough for the longest window that any rule looks back on.
HISTORY_SNAPSHOTS = 4096
HISTORY_RESCALES = 256
#: Samples of executors and operators that are kept, about 90 MB; older snapshots go without. Up to
#: 45 executors with 3 operators all have theirs.
HISTORY_SAMPLES = 200_000
DAY_S = 86_400.0
#: A longer gap between two readings is that of a driver that was down: its fleet was not paid for.
LONGEST_GAP_S = 600.0


def _samples(snapshot: Snapshot) -> int:
    return len(snapshot.executors) + len(snapshot.operators)


class Rescale(Struct, frozen=True, gc=False):
    """A change of the target that the actuator accepted."""

    at_s: float
    before: int
    after: int


class Recommendation(Struct, frozen=True, gc=False):
    """What the policy asked for at one turn, before the guards."""

    at_s: float
    executors: int


class Knowledge:
    """Snapshots, rescales and recommendations of the past, the policy's memory, the limits."""

    __slots__ = (
        "_detailed", "_samples", "history", "last_step", "limits", "now_s", "paid_today_s",
        "recommendations", "rescales",
    )  # fmt: skip

    def __init__(self, limits: Limits | None = None) -> None:
        #: What the guards will enforce: a policy that plans ahead plans inside of it.
        self.limits: Limits = Limits() if limits is None else limits
        self.now_s: float = 0.0  #: Time of the turn that is being taken.
        #: Snapshots, oldest first; while a policy decides, the last one is the one it is given.
        self.history: deque[Snapshot] = deque(maxlen=HISTORY_SNAPSHOTS)
        self._detailed = self._samples = 0  # the newest snapshots with all samples; those samples
        #: Accepted changes of the target, oldest first.
        self.rescales: deque[Rescale] = deque(maxlen=HISTORY_RESCALES)
        #: What the policy asked for at each turn, before the guards, oldest first.
        self.recommendations: deque[Recommendation] = deque(maxlen=HISTORY_SNAPSHOTS)
        self.last_step: Step | None = None
        #: Executor-seconds since midnight (UTC), as far back as the steps go.
        self.paid_today_s: float = 0.0

    @classmethod
    def from_steps(cls, steps: Iterable[Step], limits: Limits | None = None) -> Knowledge:
        """Fold a journal: the state of a controller that had taken these steps itself."""
        knowledge = cls(limits)
        for step in steps:
            if step.snapshot is not None:
                knowledge.learn(step.snapshot, step.at_s)
            knowledge.remember(step)
        return knowledge

    def learn(self, snapshot: Snapshot, now_s: float) -> None:
        """Take in what the sensor saw (controller only)."""
        self.now_s = now_s
        if self.history:
            last, midnight_s = self.history[-1], snapshot.at_s // DAY_S * DAY_S
            if last.at_s < midnight_s:
                self.paid_today_s = 0.0
            since_s = max(last.at_s, midnight_s, snapshot.at_s - LONGEST_GAP_S)
            paid = max(last.fleet.target, last.fleet.registered)
            self.paid_today_s += paid * max(0.0, snapshot.at_s - since_s)
        if self._detailed == HISTORY_SNAPSHOTS:
            self._forget_samples()  # of the one that the new one pushes out
        self.history.append(snapshot)
        self._detailed, self._samples = self._detailed + 1, self._samples + _samples(snapshot)
        while self._samples > HISTORY_SAMPLES and self._detailed > 1:
            self._forget_samples()

    def _forget_samples(self) -> None:
        """Of the oldest snapshot that has them; what it says of the whole job stays."""
        place = len(self.history) - self._detailed
        old = self.history[place]
        self._detailed, self._samples = self._detailed - 1, self._samples - _samples(old)
        self.history[place] = structs.replace(old, executors=(), operators=())

    def remember(self, step: Step) -> None:
        """Take in what was decided and done (controller only)."""
        self.now_s = step.at_s
        self.last_step = step
        if step.snapshot is None:
            return
        self.recommendations.append(Recommendation(step.at_s, step.decision.wanted_executors))
        if step.receipt is not None and step.receipt.accepted:
            before, after = step.snapshot.fleet.target, step.decision.target_executors
            self.rescales.append(Rescale(step.at_s, before, after))

    def recall(self, kind: type[Memory]) -> Memory:
        """The policy's memory from its last decision, found by type; fresh if there is none.

        A memory that comes from a journal on disk is plain data with the name of its type
        (``tag=True``): it is turned into `kind`, or ignored when another policy wrote it.
        """
        memory: Any = None if self.last_step is None else self.last_step.decision.memory
        if isinstance(memory, kind):
            return memory
        try:
            return msgspec.convert(memory, kind) if isinstance(memory, dict) else kind()
        except msgspec.ValidationError:
            return kind()

    def since_rescale_s(self) -> float | None:
        """Seconds since the last accepted rescale; ``None`` if there was none."""
        return self.now_s - self.rescales[-1].at_s if self.rescales else None

    def window(self, seconds: float) -> Sequence[Snapshot]:
        """The snapshots of the last `seconds`, oldest first, the present one included."""
        past = []
        for snapshot in reversed(self.history):
            if self.now_s - snapshot.at_s > seconds:
                break
            past.append(snapshot)
        past.reverse()
        return past

    def latest(self, count: int) -> Sequence[Snapshot]:
        return list(islice(self.history, max(0, len(self.history) - count), None))

    def mean(self, metric: SnapshotMetric, seconds: float) -> float | None:
        """Mean of what was measured of `metric` over the last `seconds`; ``None`` without any."""
        values = [value for s in self.window(seconds) if (value := metric(s)) is not None]
        return sum(values) / len(values) if values else None

    def slope(self, metric: SnapshotMetric, seconds: float) -> float | None:
        """Least-squares slope per second of `metric`; ``None`` with fewer than two points."""
        points = [(s.at_s, value) for s in self.window(seconds) if (value := metric(s)) is not None]
        if len(points) < 2:
            return None
        at_mean = sum(at for at, _ in points) / len(points)
        value_mean = sum(value for _, value in points) / len(points)
        spread = sum((at - at_mean) ** 2 for at, _ in points)
        if spread == 0.0:
            return None
        return sum((at - at_mean) * (value - value_mean) for at, value in points) / spread
