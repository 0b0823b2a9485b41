"""The facts of the Nexmark events: kinds, ids, times, hot keys, prices, sizes.

An online auction: people register, open auctions, and bid. Events are numbered from 0, and the
number alone fixes an event's kind, its id and which keys are hot; the rest is drawn by lot
(`penstock.testbed.jobs.nexmark_events`).

Of 50 events one is a person, three are auctions and 46 are bids:

>>> [event_kind(n) for n in (0, 1, 3, 4, 49, 50)]
['person', 'auction', 'auction', 'bid', 'bid', 'person']

References
----------
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/.../generator` and `.../queries`.
"""

from __future__ import annotations

import math
from typing import Literal

EventKind = Literal["person", "auction", "bid"]

PERSONS_PER_EPOCH = 1
AUCTIONS_PER_EPOCH = 3
BIDS_PER_EPOCH = 46
EVENTS_PER_EPOCH = PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH + BIDS_PER_EPOCH

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
CATEGORIES = range(10, 15)

#: One key in each batch of so many is hot.
KEYS_PER_HOT_KEY = 100
HOT_SELLER_FRACTION = 3 / 4
HOT_AUCTION_FRACTION = 1 / 2
HOT_BIDDER_FRACTION = 3 / 4
HOT_CHANNEL_FRACTION = 1 / 2

ACTIVE_PERSONS = 1000
AUCTIONS_IN_FLIGHT = 100
#: Ids this far ahead of the newest may be named before they exist.
ID_LEAD = 10

PERSON_BYTES = 200
AUCTION_BYTES = 500
BID_BYTES = 100
#: A bid without its `extra` counts as four longs, whatever its channel and url.
BID_FIXED_BYTES = 32
LONG_BYTES = 8

WATERMARK_S = 4
DEFAULT_RATE_RPS = 10_000.0

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland",
    "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
)  # fmt: skip
LAST_NAMES = (
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
)  # fmt: skip
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
COLD_CHANNELS = 10_000
CHANNEL_ID_FRACTION = 9 / 10

SHORTEST_STRING = 3
LONGEST_ITEM_NAME = 20
LONGEST_DESCRIPTION = 100
LONGEST_MAILBOX = 7
LONGEST_MAIL_HOST = 5
#: One character in so many of a random string is a space.
CHARACTERS_PER_SPACE = 13


def event_kind(event: int) -> EventKind:
    """What the event with that number is."""
    place = event % EVENTS_PER_EPOCH
    if place < PERSONS_PER_EPOCH:
        return "person"
    return "auction" if place < PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH else "bid"


def last_person_id(event: int) -> int:
    """The newest person once the event is out; the event's own id if it is a person.

    >>> last_person_id(0), last_person_id(49), last_person_id(50)
    (1000, 1000, 1001)
    """
    return FIRST_PERSON_ID + event // EVENTS_PER_EPOCH


def last_auction_id(event: int) -> int:
    """The newest auction once the event is out; the event's own id if it is an auction.

    Before the first auction this is one less than the first id:

    >>> last_auction_id(0), last_auction_id(1), last_auction_id(3), last_auction_id(50)
    (999, 1000, 1002, 1002)
    """
    epoch, place = divmod(event, EVENTS_PER_EPOCH)
    in_epoch = min(place, AUCTIONS_PER_EPOCH)
    return FIRST_AUCTION_ID + AUCTIONS_PER_EPOCH * epoch + in_epoch - 1


def hot_seller(event: int) -> int:
    """Who sells most now: the first of the last hundred persons."""
    return FIRST_PERSON_ID + _first_of_batch(last_person_id(event) - FIRST_PERSON_ID)


def hot_bidder(event: int) -> int:
    """Who bids most now: the second of the last hundred persons, so never the hot seller.

    >>> hot_bidder(123_456), hot_seller(123_456)
    (3401, 3400)
    """
    return hot_seller(event) + 1


def hot_bidder_of_nexmark_master(event: int) -> int:
    """The hot bidder as the public generator numbers it: it adds the first person's id twice.

    Bidders then match no person, which empties every join of bids with persons. Our events use
    `hot_bidder`.
    """
    return FIRST_PERSON_ID + hot_bidder(event)


def hot_auction(event: int) -> int:
    """What is bid on most now: the first of the last hundred auctions."""
    return FIRST_AUCTION_ID + _first_of_batch(last_auction_id(event) - FIRST_AUCTION_ID)


def _first_of_batch(index: int) -> int:
    # Before the first auction the index is -1; the origin divides toward zero, so that is batch 0.
    return max(index, 0) // KEYS_PER_HOT_KEY * KEYS_PER_HOT_KEY


def cold_persons(event: int) -> range:
    """The persons among whom a seller or bidder that is not hot is drawn evenly.

    >>> cold_persons(0)
    range(1000, 1011)
    """
    newest = last_person_id(event)
    active = min(newest - FIRST_PERSON_ID + 1, ACTIVE_PERSONS)
    return range(newest + 1 - active, newest + 1 + ID_LEAD)


def cold_auctions(event: int) -> range:
    """The auctions among which the auction of a bid is drawn evenly, if it is not the hot one.

    >>> cold_auctions(4)
    range(1000, 1013)
    """
    newest = last_auction_id(event)
    oldest = max(newest - AUCTIONS_IN_FLIGHT, FIRST_AUCTION_ID)
    return range(oldest, newest + 1 + ID_LEAD)


def event_time_ms(event: int, rate_rps: float, *, generators: int = 1, base_ms: int = 0) -> int:
    """When the event says that it happened, at a constant rate.

    >>> event_time_ms(12_345, 10_000)
    1234
    """
    between_us = 1_000_000.0 / rate_rps * generators
    return base_ms + int(event * between_us) // 1000


def out_of_order(event: int, group: int) -> int:
    """The number that the event takes when each group of so many events is shuffled.

    >>> [out_of_order(n, 4) for n in range(8)], out_of_order(7, 1)
    ([0, 1, 2, 3, 4, 5, 6, 7], 7)
    >>> [out_of_order(n, 5) for n in range(5)]
    [0, 3, 1, 4, 2]
    """
    return event // group * group + event * 953 % group


def events_until_auctions_turn_over() -> int:
    """How many events it takes until as many new auctions have opened as are in flight."""
    return AUCTIONS_IN_FLIGHT * EVENTS_PER_EPOCH // AUCTIONS_PER_EPOCH


def longest_auction_ms(event: int, rate_rps: float, *, base_ms: int = 0) -> int:
    """The longest time that an auction opened by that event can run.

    Twice the time in which the auctions in flight turn over: 1,666 events, 166 ms at 10,000/s.

    >>> longest_auction_ms(0, 10_000)
    332
    """
    later = event_time_ms(event + events_until_auctions_turn_over(), rate_rps, base_ms=base_ms)
    return max(1, 2 * (later - event_time_ms(event, rate_rps, base_ms=base_ms)))


def price(lot: float) -> int:
    """A price in cents from a lot in [0, 1): 100 to 100,000,000, even on a logarithmic scale.

    >>> price(0.0), price(0.5), price(0.999999)
    (100, 100000, 99998618)
    """
    return math.floor(math.pow(10.0, 6.0 * lot) * 100.0 + 0.5)


def extra_lengths(fixed_bytes: int, average_bytes: int) -> range:
    """How long the padding of an event may be, to bring it to its average size within 20 %.

    >>> extra_lengths(BID_FIXED_BYTES, BID_BYTES)
    range(54, 82)
    >>> extra_lengths(101, BID_BYTES)
    range(0, 1)
    """
    missing = average_bytes - fixed_bytes
    if missing < 0:
        return range(1)
    spread = math.floor(missing * 0.2 + 0.5)
    return range(missing - spread, missing - spread + max(2 * spread, 1))


def channel_id(channel: int) -> int:
    """The id in the url of a cold channel: its 32 bits reversed, as a size.

    >>> channel_id(0), channel_id(1), channel_id(2)
    (0, 2147483648, 1073741824)
    """
    reverse = int(f"{channel & 0xFFFFFFFF:032b}"[::-1], 2)
    return reverse if reverse < 2**31 else 2**32 - reverse


def time_of_day(hour: int) -> Literal["dayTime", "nightTime", "otherTime"]:
    """The part of the day that query 14 gives an hour.

    >>> [time_of_day(hour) for hour in (6, 7, 8, 18, 19, 20)]
    ['nightTime', 'otherTime', 'dayTime', 'dayTime', 'otherTime', 'nightTime']
    """
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
