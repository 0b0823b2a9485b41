"""The events of the Yahoo Streaming Benchmark."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.ysb import AdEvents, campaign_of_ad

BASE_MS = 1_700_000_000_000


def stream(seed: int = 3) -> AdEvents:
    return AdEvents(seed, partial(Timeline([50.0]).due_ms, base_ms=BASE_MS))


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    return [json.loads(value) for number in range(2) for value in stream().block(number)]


def test_an_event_has_the_seven_fields_of_the_original_all_text(
    events: list[dict[str, Any]],
) -> None:
    names = ["user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"]
    assert all(list(event) == names for event in events)
    assert {type(value) for event in events for value in event.values()} == {str}
    assert {event["ip_address"] for event in events} == {"1.2.3.4"}


def test_ids_and_kinds_are_as_many_as_in_the_original_and_even(
    events: list[dict[str, Any]],
) -> None:
    counts = {name: Counter(event[name] for event in events) for name in events[0]}
    assert {name: len(counts[name]) for name in ("user_id", "page_id", "ad_id", "ad_type")} == {
        "user_id": 100,
        "page_id": 100,
        "ad_id": 1000,
        "ad_type": 5,
    }
    # A third of 10,000 with a standard deviation of 47; a fifth with 40.
    assert set(counts["event_type"]) == {"view", "click", "purchase"}
    assert all(
        counts["event_type"][kind] == pytest.approx(3333, abs=200) for kind in ("view", "click")
    )
    assert all(count == pytest.approx(2000, abs=200) for count in counts["ad_type"].values())


def test_ten_advertisements_belong_to_each_of_a_hundred_campaigns(
    events: list[dict[str, Any]],
) -> None:
    campaigns = campaign_of_ad()
    assert len(campaigns) == 1000
    assert Counter(Counter(campaigns.values()).values()) == {10: 100}
    assert {event["ad_id"] for event in events} == set(campaigns)


def test_an_event_says_when_it_was_due(events: list[dict[str, Any]]) -> None:
    # 50 events a second: 20 ms apart.
    assert [int(event["event_time"]) for event in events[:3]] == [
        BASE_MS,
        BASE_MS + 20,
        BASE_MS + 40,
    ]
    assert int(events[9_999]["event_time"]) == BASE_MS + 199_980


def test_a_block_depends_on_seed_and_number_alone() -> None:
    assert stream().block(1) == stream().block(1)
    assert stream(seed=4).block(1) != stream().block(1)
    first, second = ({json.loads(value)["user_id"] for value in stream(s).block(0)} for s in (3, 4))
    assert not first & second


def test_streams_of_different_seeds_show_the_same_advertisements() -> None:
    # The job that reads a topic does not know the seed of what was sent.
    ads = [{json.loads(value)["ad_id"] for value in stream(seed).block(0)} for seed in (3, 4)]
    assert ads[0] <= set(campaign_of_ad())
    assert ads[1] <= set(campaign_of_ad())
