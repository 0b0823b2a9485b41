"""What the published Nexmark generator says of an event, where our jobs do not need it."""

from __future__ import annotations

from typing import Literal

from penstock.testbed.jobs import nexmark


def event_kind(event: int) -> Literal["person", "auction", "bid"]:
    """What the event with that number is: of 50 events, 1 is a person, 3 are auctions."""
    place = event % nexmark.EVENTS_PER_EPOCH
    if place < nexmark.PERSONS_PER_EPOCH:
        return "person"
    return "auction" if place < nexmark.PERSONS_PER_EPOCH + nexmark.AUCTIONS_PER_EPOCH else "bid"


def hot_bidder_of_nexmark_master(event: int) -> int:
    """The public generator adds the first person's id twice, so its bidders match no person."""
    return nexmark.FIRST_PERSON_ID + nexmark.hot_bidder(event)


def event_time_ms(event: int, rate_rps: float, *, generators: int = 1, base_ms: int = 0) -> int:
    """When the event says that it happened, at a constant rate."""
    between_us = 1_000_000.0 / rate_rps * generators
    return base_ms + int(event * between_us) // 1000


def time_of_day(hour: int) -> Literal["dayTime", "nightTime", "otherTime"]:
    """The part of the day that query 14 gives an hour."""
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
