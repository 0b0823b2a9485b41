"""The metrics that are compared with thresholds, and the band that each should stay inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from penstock.core.model import ExecutorSample

Metric = Literal["cpu_fraction", "memory_fraction"]

#: The mean of 0.8, 0.8 and 0.8 is 0.8000000000000002 in floats: at the threshold, not above it.
ROUNDING = 1e-9


class MetricBand(Struct, frozen=True, gc=False):
    """One metric with its thresholds, as a fraction whatever its unit.

    Filters have one measurement noise for all metrics, so bytes per second are scaled until their
    upper threshold is that of the fractions. `scale` is what one unit counts.

    >>> network = MetricBand.of_bytes("network_bytes_per_s", 10e6, 50e6, upper_fraction=0.8)
    >>> network.lower, network.upper, network.words(0.96)
    (0.16, 0.8, 'network 60.0 MB/s')
    """

    name: str
    lower: float
    upper: float
    scale: float = 1.0

    @classmethod
    def of_bytes(
        cls, name: str, lower_bytes: float, upper_bytes: float, *, upper_fraction: float
    ) -> MetricBand:
        scale = upper_fraction / upper_bytes
        return cls(name, lower_bytes * scale, upper_fraction, scale)

    def of(self, executor: ExecutorSample) -> float | None:
        """What an executor shows of it; ``None`` if that is not measured."""
        value: float | None = getattr(executor, self.name)
        return None if value is None else value * self.scale

    def mean(self, executors: Sequence[ExecutorSample]) -> float | None:
        """The mean over those that show it."""
        values = [value for one in executors if (value := self.of(one)) is not None]
        return sum(values) / len(values) if values else None

    def is_above(self, value: float) -> bool:
        return value > self.upper + ROUNDING

    def is_below(self, value: float) -> bool:
        return value < self.lower - ROUNDING

    def words(self, value: float) -> str:
        """The metric and its value, in its own unit."""
        name = self.name.partition("_")[0]
        if self.scale == 1.0:
            return f"{name} {value:.2f}"
        return f"{name} {_megabytes(value / self.scale)}"

    def threshold(self, value: float) -> str:
        """A threshold, in the unit of the metric."""
        return f"{value:g}" if self.scale == 1.0 else _megabytes(value / self.scale)


@lru_cache(maxsize=64)
def metric_bands(
    metrics: tuple[Metric, ...],
    lower: float,
    upper: float,
    network_bytes: tuple[float, ...] = (),
    disk_bytes: tuple[float, ...] = (),
) -> tuple[MetricBand, ...]:
    """The metrics that count: those by fraction, then network and disk where they have a band."""
    bands = [MetricBand(name, lower, upper) for name in metrics]
    for name, band in (("network", network_bytes), ("disk", disk_bytes)):
        if band:
            bands.append(MetricBand.of_bytes(f"{name}_bytes_per_s", *band, upper_fraction=upper))
    return tuple(bands)


def compared(
    seen: Sequence[tuple[MetricBand, float]], where: Literal["above", "below", "between"]
) -> str:
    """Metrics and where they lie; those with the same thresholds together.

    >>> cpu, memory = (MetricBand(name, 0.45, 0.8) for name in ("cpu_fraction", "memory_fraction"))
    >>> network = MetricBand.of_bytes("network_bytes_per_s", 10e6, 50e6, upper_fraction=0.8)
    >>> compared([(cpu, 0.3), (memory, 0.4), (network, 0.08)], "below")
    'cpu 0.30 and memory 0.40 are below 0.45, network 5.0 MB/s is below 10.0 MB/s'
    """
    by_limit: dict[str, list[str]] = {}
    for band, value in seen:
        low, high = band.threshold(band.lower), band.threshold(band.upper)
        limits = {"above": high, "below": low, "between": f"{low} and {high}"}
        by_limit.setdefault(limits[where], []).append(band.words(value))
    return ", ".join(
        f"{' and '.join(same)} {'is' if len(same) == 1 else 'are'} {where} {limit}"
        for limit, same in by_limit.items()
    )


def _megabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s"
