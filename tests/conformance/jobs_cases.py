"""How the published cases of the job generators are put to our code.

Each entry takes a whole case and answers in the shape of its `expected`; the comparison is made
by whoever runs the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.testbed.jobs import nexmark, ysb
from tests.conformance import nexmark_reference


def _each(answer: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda case: [answer(value) for value in case["input"]]


def _last_ids(event: int) -> dict[str, int]:
    return {"person": nexmark.last_person_id(event), "auction": nexmark.last_auction_id(event)}


def _hot(event: int) -> dict[str, int]:
    return {
        "hot_seller": nexmark.hot_seller(event),
        "hot_bidder_expected": nexmark.hot_bidder(event),
        "hot_bidder_nexmark_master": nexmark_reference.hot_bidder_of_nexmark_master(event),
        "hot_auction": nexmark.hot_auction(event),
    }


def _timestamp(at: Mapping[str, Any]) -> int:
    return nexmark_reference.event_time_ms(
        at["event"], at["rate"], generators=at["generators"], base_ms=at["base"]
    )


def _ysb_window_start_ms(event_time_ms: int) -> int:
    """The windows of the Yahoo Streaming Benchmark follow each other from the epoch on.

    That the job's own windows do is tested on a real Spark (test_streaming_jobs.py).
    """
    window_ms = ysb.WINDOW_S * 1000
    return event_time_ms // window_ms * window_ms


RUNNERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "nexmark.event_type": _each(nexmark_reference.event_kind),
    "nexmark.last_ids": _each(_last_ids),
    "nexmark.hot": _each(_hot),
    "nexmark.timestamp": _each(_timestamp),
    "nexmark.price": lambda case: nexmark.prices(np.array(case["input"])).tolist(),
    "nexmark.q14_time_type": _each(nexmark_reference.time_of_day),
    "ysb.window": _each(_ysb_window_start_ms),
}
