"""The facts of Nexmark, and a stream drawn from them that keeps them."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.testbed.jobs import nexmark
from penstock.testbed.jobs.nexmark_events import EVENTS_PER_BLOCK, NexmarkEvents
from penstock.testbed.jobs.timeline import Timeline
from tests.conformance import nexmark_reference

RATE_RPS = 10_000
BASE_MS = 1_700_000_000_000
BLOCK = 7  # late enough that ids have a past of their own

due_ms = partial(Timeline([float(RATE_RPS)]).due_ms, base_ms=BASE_MS)
event_numbers = st.integers(min_value=0, max_value=10**12)


@pytest.fixture(scope="module")
def stream() -> NexmarkEvents:
    return NexmarkEvents(seed=42, due_ms=due_ms)


@pytest.fixture(scope="module")
def block(stream: NexmarkEvents) -> list[dict[str, Any]]:
    return [json.loads(value) for value in stream.block(BLOCK)]


def numbered(block: list[dict[str, Any]], kind: str) -> list[tuple[int, dict[str, Any]]]:
    first = BLOCK * EVENTS_PER_BLOCK
    return [(first + i, event[kind]) for i, event in enumerate(block) if kind in event]


@given(event_numbers)
def test_ids_grow_by_one_at_each_person_and_auction(event: int) -> None:
    kind = nexmark_reference.event_kind(event + 1)
    persons = nexmark.last_person_id(event + 1) - nexmark.last_person_id(event)
    auctions = nexmark.last_auction_id(event + 1) - nexmark.last_auction_id(event)
    assert (persons, auctions) == (int(kind == "person"), int(kind == "auction"))


@given(event_numbers)
def test_hot_keys_are_among_the_last_hundred(event: int) -> None:
    assert 0 <= nexmark.last_person_id(event) - nexmark.hot_seller(event) < 100
    assert -1 <= nexmark.last_auction_id(event) - nexmark.hot_auction(event) < 100
    assert nexmark.hot_bidder(event) == nexmark.hot_seller(event) + 1


@given(event_numbers)
def test_cold_keys_reach_ten_ids_ahead_and_never_below_the_first(event: int) -> None:
    persons, auctions = nexmark.cold_persons(event), nexmark.cold_auctions(event)
    assert persons[-1] == nexmark.last_person_id(event) + 10
    assert auctions[-1] == nexmark.last_auction_id(event) + 10
    assert persons[0] >= 1000
    assert auctions[0] >= 1000
    assert len(persons) <= 1010
    assert len(auctions) <= 111


@given(st.floats(0, 1, exclude_max=True))
def test_prices_lie_between_a_dollar_and_a_million(draw: float) -> None:
    assert 100 <= nexmark.prices(np.array([draw]))[0] <= 100_000_000


def test_the_hot_bidder_of_the_original_is_no_person() -> None:
    assert nexmark_reference.hot_bidder_of_nexmark_master(123_456) == 4401
    assert nexmark.hot_bidder(123_456) == 3401


def test_each_event_is_what_its_number_says(block: list[dict[str, Any]]) -> None:
    first = BLOCK * EVENTS_PER_BLOCK
    types = {"person": 0, "auction": 1, "bid": 2}
    for i, event in enumerate(block):
        kind = nexmark_reference.event_kind(first + i)
        assert event.keys() == {"event_type", kind}
        assert event["event_type"] == types[kind]
        expected_ms = nexmark_reference.event_time_ms(first + i, RATE_RPS, base_ms=BASE_MS)
        assert event[kind]["dateTime"] == expected_ms


def test_ids_are_those_of_the_facts(block: list[dict[str, Any]]) -> None:
    for number, person in numbered(block, "person"):
        assert person["id"] == nexmark.last_person_id(number)
    for number, auction in numbered(block, "auction"):
        assert auction["id"] == nexmark.last_auction_id(number)
        hot, cold = nexmark.hot_seller(number), nexmark.cold_persons(number)
        assert auction["seller"] == hot or auction["seller"] in cold
    for number, bid in numbered(block, "bid"):
        hot_auction, hot_bidder = nexmark.hot_auction(number), nexmark.hot_bidder(number)
        assert bid["auction"] == hot_auction or bid["auction"] in nexmark.cold_auctions(number)
        assert bid["bidder"] == hot_bidder or bid["bidder"] in nexmark.cold_persons(number)


def test_hot_keys_are_as_hot_as_they_should_be(stream: NexmarkEvents) -> None:
    hot: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for block in range(20, 30):
        for i, value in enumerate(stream.block(block)):
            number = block * EVENTS_PER_BLOCK + i
            event = json.loads(value)
            if bid := event.get("bid"):
                total["bid"] += 1
                hot["auction"] += bid["auction"] == nexmark.hot_auction(number)
                hot["bidder"] += bid["bidder"] == nexmark.hot_bidder(number)
                hot["channel"] += bid["channel"] in nexmark.HOT_CHANNELS
            elif auction := event.get("auction"):
                total["auction"] += 1
                hot["seller"] += auction["seller"] == nexmark.hot_seller(number)
    # Chance strikes the hot auction once in 111 by itself, the hot persons once in 1010.
    assert hot["auction"] / total["bid"] == pytest.approx(0.5 + 0.5 / 111, abs=0.01)
    assert hot["bidder"] / total["bid"] == pytest.approx(0.75, abs=0.01)
    assert hot["channel"] / total["bid"] == pytest.approx(0.5, abs=0.01)
    assert hot["seller"] / total["auction"] == pytest.approx(0.75, abs=0.03)


def test_fields_hold_what_the_benchmark_says(block: list[dict[str, Any]]) -> None:
    for _, person in numbered(block, "person"):
        first, last = person["name"].split(" ")
        assert first in nexmark.FIRST_NAMES
        assert last in nexmark.LAST_NAMES
        assert person["city"] in nexmark.CITIES
        assert person["state"] in nexmark.STATES
        assert [len(part) for part in person["creditCard"].split(" ")] == [4, 4, 4, 4]
        assert person["emailAddress"].endswith(".com")
    longest_ms = 2000 * nexmark.events_until_auctions_turn_over() / RATE_RPS
    for _, auction in numbered(block, "auction"):
        assert auction["category"] in nexmark.CATEGORIES
        assert auction["reserve"] >= auction["initialBid"] + 100
        assert 1 <= auction["expires"] - auction["dateTime"] <= longest_ms + 2
        assert len(auction["itemName"]) < 20
        assert len(auction["description"]) < 100
    for _, bid in numbered(block, "bid"):
        assert 100 <= bid["price"] <= 100_000_000
        assert len(bid["extra"]) in range(54, 82)
        if bid["channel"] not in nexmark.HOT_CHANNELS and "channel_id" in bid["url"]:
            number = int(bid["channel"].removeprefix("channel-"))
            assert bid["url"].endswith(f"&channel_id={nexmark.channel_id(number)}")


def test_sizes_are_right_on_average(block: list[dict[str, Any]]) -> None:
    def mean(sizes: list[int]) -> float:
        return sum(sizes) / len(sizes)

    person_text = ("name", "emailAddress", "creditCard", "city", "state", "extra")
    people = [8 + sum(len(p[key]) for key in person_text) for _, p in numbered(block, "person")]
    auction_text = ("itemName", "description", "extra")
    auctions = [
        48 + sum(len(a[key]) for key in auction_text) for _, a in numbered(block, "auction")
    ]
    bids = [32 + len(b["extra"]) for _, b in numbered(block, "bid")]
    assert mean(people) == pytest.approx(200, rel=0.03)
    assert mean(auctions) == pytest.approx(500, rel=0.03)
    assert mean(bids) == pytest.approx(100, rel=0.03)


def test_a_block_does_not_depend_on_what_was_drawn_before_it(stream: NexmarkEvents) -> None:
    fresh = NexmarkEvents(seed=42, due_ms=due_ms)
    assert fresh.block(3) == stream.block(3)


def test_another_seed_gives_other_events_with_the_same_ids(stream: NexmarkEvents) -> None:
    other = NexmarkEvents(seed=43, due_ms=due_ms).block(0)
    same = stream.block(0)
    assert other != same
    assert [json.loads(v)["person"]["id"] for v in other[::50]] == [
        json.loads(v)["person"]["id"] for v in same[::50]
    ]
