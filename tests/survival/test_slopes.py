"""A soak finds what grows slowly under noise, and nothing where nothing grows."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.slopes import is_growth, slope

HOUR_S = [float(second) for second in range(7200)]


@pytest.mark.parametrize(("leak_per_hour", "is_found"), [(0.0, False), (40.0, True)])
def test_a_leak_is_found_under_noise_and_a_warm_up_is_none(
    leak_per_hour: float, is_found: bool
) -> None:
    rng = Random(3)
    warm_up = [min(100.0, second / 20.0) for second in HOUR_S]
    values = [
        warm + leak_per_hour * second / 3600.0 + rng.gauss(0.0, 8.0)
        for warm, second in zip(warm_up, HOUR_S, strict=True)
    ]
    found = slope("MiB", HOUR_S, values)
    assert found is not None
    assert is_growth(found, tolerated_per_hour=8.0) == is_found
    assert found.low <= leak_per_hour <= found.high


def test_too_few_samples_say_nothing() -> None:
    assert slope("MiB", HOUR_S[:20], HOUR_S[:20]) is None
