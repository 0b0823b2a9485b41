"""Loads of studies that are shipped: two that were recorded, one that stands in for a third."""

from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec
import numpy as np
from msgspec import Struct

from penstock.simulation.workloads import shape
from penstock.simulation.workloads.shape import Series, Shape

LABORATORY_S = 2700  #: The length of the load of the laboratory.


class RecordedMeans(Struct, frozen=True):
    """Mean rates of equal spans, and where they were published."""

    source: str
    every_s: int
    means_rps: list[float]


@lru_cache(maxsize=1)
def _recordings() -> dict[str, RecordedMeans]:
    content = (files(__package__) / "data" / "recordings.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, RecordedMeans])


class RecordedRates(Shape, frozen=True, tag="recording"):
    """Six hours of a recorded load: the clicks of an advertiser, or the traffic of a city.

    Both are of Pfister et al. (ICPE 2024). Straight lines join the middles of spans of 30 s.

    >>> load = RecordedRates(name="daedalus-ysb").rates(21_600, seed=0, capacity_rps=float)
    >>> round(max(load)), round(sum(load) / len(load))
    (549974, 211343)
    """

    name: Literal["daedalus-ysb", "daedalus-traffic"]

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        load = _recordings()[self.name]
        middles_s = load.every_s * (np.arange(len(load.means_rps)) + 0.5)
        return np.interp(at_s % self.natural_duration_s() + 0.5, middles_s, load.means_rps)

    def natural_duration_s(self) -> float:
        load = _recordings()[self.name]
        return float(load.every_s * len(load.means_rps))


class Laboratory(Shape, frozen=True, tag="laboratory"):
    """Smooth drift and sudden changes over 45 minutes, 0 to 65 images/s, the same for every seed.

    A stand-in for the load "Lab" of Borkowski et al. (2019), which is not published. Its rates and
    times are like those of their other loads, which were made after it; its mean, 37 images/s, is
    what the VM time of that study on Lab says against that on Pyramid.
    """

    def series(self, at_s: Series, random: np.random.Generator) -> Series:
        return _laboratory()[shape.intervals(at_s, 1.0) % LABORATORY_S]

    def natural_duration_s(self) -> float:
        return float(LABORATORY_S)


@lru_cache(maxsize=1)
def _laboratory() -> Series:
    rng = np.random.default_rng(2019)
    rates = np.empty(LABORATORY_S)
    at, level = 0, 35.0
    while at < LABORATORY_S:
        length = int(rng.integers(40, 240))
        aim = float(rng.uniform(0.0, 65.0))
        sudden = rng.random() < 0.5
        piece = np.full(length, aim) if sudden else np.linspace(level, aim, length)
        rates[at : at + length] = piece[: LABORATORY_S - at]
        at, level = at + length, aim
    rates += rng.normal(0.0, 1.5, LABORATORY_S)
    return np.asarray((rates * 37.0 / rates.mean()).clip(0.0, 65.0))
