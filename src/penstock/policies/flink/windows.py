"""Rates and means over a window of samples, and when such a window is full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import inf, isfinite, isinf

from msgspec import Struct

_THOUSANDTH = Decimal("0.001")
#: From here on a double has no thousandths.
_WITHOUT_THOUSANDTHS = 1e13
#: The clock of the operator ticks in milliseconds; two samples lie at least one tick apart.
_TICK_S = 0.001


def rate(points: Iterable[tuple[float, float | None]]) -> float | None:
    """How fast a counter grows, per second: from its first to its last known value.

    >>> rate([(1.0, 0.0), (2.0, None), (3.0, 4.0)])
    2.0
    >>> rate([(3.0, 1.0)]) is None
    True
    """
    first: tuple[float, float] | None = None
    last: tuple[float, float] | None = None
    for at_s, value in points:
        if value is None:
            continue
        if first is None:
            first = at_s, value
        else:
            last = at_s, value
    if first is None or last is None:
        return None
    return (last[1] - first[1]) / max(last[0] - first[0], _TICK_S)


def mean(values: Iterable[float | None], at_least: int = 1) -> float | None:
    """Mean of the known finite values if there are enough; infinite if there are only such.

    >>> mean([1.0, None, 3.0, float("inf")])
    2.0
    >>> mean([1.0, None], at_least=2) is None, mean([None, float("inf")])
    (True, inf)
    """
    total, count, any_infinite = 0.0, 0, False
    for value in values:
        if value is None:
            continue
        if isinf(value):
            any_infinite = True
            continue
        total += value
        count += 1
    if not count:
        return inf if any_infinite else None
    return total / count if count >= at_least else None


def rounded(value: float) -> float:
    """As the operator keeps its metrics: three decimals, but never down to zero.

    >>> rounded(588.23529), rounded(0.0001), rounded(0.0005)
    (588.235, 0.0001, 0.001)
    """
    if not isfinite(value) or abs(value) >= _WITHOUT_THOUSANDTHS:
        return value
    short = float(Decimal(repr(float(value))).quantize(_THOUSANDTH, ROUND_HALF_UP))
    return short or value


class Collected(Struct, frozen=True, gc=False):
    """Which samples are kept (their times, oldest first), and whether they fill the window."""

    at_s: tuple[float, ...]
    is_full: bool


def collect(
    kept_at_s: Sequence[float],
    now_s: float,
    *,
    running_at_s: float,
    stabilization_s: float,
    window_s: float,
) -> Collected:
    """Add a sample taken now. The window's clock starts with the first sample of a settled job.

    A job that was restarted forgets all samples; old ones are dropped only once the window is full.

    >>> collect([50, 60, 150, 180], 260, running_at_s=0, stabilization_s=100, window_s=100)
    Collected(at_s=(180, 260), is_full=True)
    """
    if kept_at_s and running_at_s > kept_at_s[0]:
        kept_at_s = ()
    stable_at_s = running_at_s + stabilization_s
    full_at_s = next((at_s for at_s in kept_at_s if at_s >= stable_at_s), now_s) + window_s
    if now_s < full_at_s:
        return Collected((*kept_at_s, now_s), is_full=False)
    oldest_at_s = now_s - window_s
    kept = tuple(at_s for at_s in kept_at_s if at_s >= oldest_at_s)
    return Collected((*kept, now_s), is_full=True)
