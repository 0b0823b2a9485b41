"""Whether something grows without end: a line through its samples, and how sure its slope is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

#: The start is left out: caches and histories fill.
WARM_UP = 1 / 3
#: Samples that follow each other are alike; the means of so many spans hardly are.
SPANS = 12
LEAST_SAMPLES = 2 * SPANS


@dataclass(frozen=True)
class Slope:
    """What something grows by per hour, and the range that holds the truth in 95 of 100 cases."""

    name: str
    per_hour: float
    low: float
    high: float

    def sentence(self) -> str:
        """In words.

        >>> Slope("threads", 0.2, -0.1, 0.5).sentence()
        'threads: +0.2 per hour (-0.1 to +0.5)'
        """
        return f"{self.name}: {self.per_hour:+.3g} per hour ({self.low:+.3g} to {self.high:+.3g})"


def slope(name: str, at_s: Sequence[float], values: Sequence[float]) -> Slope | None:
    """The slope after the warm-up; ``None`` with too few samples.

    >>> at_s = [float(second) for second in range(3600)]
    >>> slope("bytes", at_s, [2.0 * second for second in at_s]).sentence()
    'bytes: +7.2e+03 per hour (+7.2e+03 to +7.2e+03)'
    >>> noise = [10.0 + number % 7 for number in range(3600)]
    >>> abs(slope("threads", at_s, noise).per_hour) < 0.1
    True
    """
    from scipy.stats import linregress, t  # type: ignore[import-untyped]

    first = int(len(at_s) * WARM_UP)
    kept = list(zip(at_s[first:], values[first:], strict=True))
    if len(kept) < LEAST_SAMPLES:
        return None
    edges = [round(number * len(kept) / SPANS) for number in range(SPANS + 1)]
    spans = [kept[begin:end] for begin, end in pairwise(edges)]
    hours = [fmean(at for at, _ in span) / 3600.0 for span in spans]
    means = [fmean(value for _, value in span) for span in spans]
    line = linregress(hours, means)
    margin = float(t.ppf(0.975, SPANS - 2)) * float(line.stderr)
    per_hour = float(line.slope)
    return Slope(name, per_hour, per_hour - margin, per_hour + margin)


def is_growth(found: Slope, tolerated_per_hour: float) -> bool:
    """Whether it surely grows by more than is tolerated.

    >>> is_growth(Slope("MiB", 3.0, -1.0, 7.0), 0.0), is_growth(Slope("MiB", 3.0, 2.0, 4.0), 1.0)
    (False, True)
    """
    return found.low > tolerated_per_hour
