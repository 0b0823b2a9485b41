"""The words of the Kafka scaler's cases in our types, and our answers in theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.policies.kubernetes.keda_lag import KedaLag, factors, next_factor
from tests.conformance.reference.keda import metric_of_lags, partition_lag

Case = Mapping[str, Any]


def _factors(case: Case) -> list[int]:
    return factors(case["inputs"]["n"])


def _next_factor(case: Case) -> int:
    return next_factor(**case["inputs"])


def _partition_lag(case: Case) -> int:
    words = dict(case["inputs"])
    lag = partition_lag(
        words.pop("committed"),
        words.pop("end_offset"),
        offset_reset=words.pop("offset_reset_policy"),
        zero_on_invalid_offset=words.pop("scale_to_zero_on_invalid_offset"),
    )
    if words:
        raise ValueError(f"no translation for {sorted(words)}")
    return lag.scaling


def _metric_value(case: Case) -> int:
    words = dict(case["inputs"])
    lags = words.pop("lags")
    return metric_of_lags(KedaLag(**words), lags)


RUNNERS: dict[str, Callable[[Case], Any]] = {
    "factors": _factors,
    "next_factor": _next_factor,
    "partition_lag": _partition_lag,
    "metric_value": _metric_value,
}
