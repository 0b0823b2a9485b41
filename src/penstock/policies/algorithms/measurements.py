"""What many rules do with measurements: hold without them, and take means of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from penstock.core import phrases
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Reason, Snapshot

Metric = Literal["cpu_fraction", "memory_fraction", "throughput_rps"]


def hold(
    fleet: int, code: str, why: str, evidence: dict[str, float] | None = None, memory: Any = None
) -> Decision:
    """The decision to leave the fleet as it is.

    >>> hold(1, "healthy", "nothing waits").reasons[0].text
    'holding 1 executor: nothing waits'
    """
    text = f"holding {phrases.executors(fleet)}: {why}"
    return Decision.of(fleet, Reason(code, text, evidence or {}), memory=memory)


def missing(**measured: float | None) -> list[str]:
    """The names of what was not measured.

    >>> missing(delay_s=3.0, arrival_rps=None)
    ['arrival_rps']
    """
    return [name for name, value in measured.items() if value is None]


def window_mean(
    metric: Callable[[Snapshot], float | None],
    snapshot: Snapshot,
    knowledge: Knowledge,
    window_s: float,
) -> float | None:
    """The mean over the window; the present value where the window is empty."""
    mean = knowledge.mean(metric, window_s)
    return metric(snapshot) if mean is None else mean


def executor_mean(executors: Iterable[ExecutorSample], metric: Metric) -> float | None:
    """The mean over the ready executors that report the metric; ``None`` without any."""
    values = [v for e in executors if e.ready and (v := getattr(e, metric)) is not None]
    return sum(values) / len(values) if values else None
