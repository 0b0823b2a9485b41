"""The facts of the Nexmark events: kinds, ids, times, hot keys, prices, sizes.

An online auction: people register, open auctions, and bid. The number of an event, from 0, fixes
its kind, its id and which keys are hot; the rest is random (`nexmark_events`). Of 50 events the
first is a person, the next three are auctions and the other 46 are bids. All as in
github.com/nexmark/nexmark at 6b3646c3, `nexmark-flink/.../generator` and `.../queries`.
"""

import math

import numpy as np
from numpy.typing import NDArray

PERSONS_PER_EPOCH = 1
AUCTIONS_PER_EPOCH = 3
BIDS_PER_EPOCH = 46
EVENTS_PER_EPOCH = PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH + BIDS_PER_EPOCH

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
CATEGORIES = range(10, 15)

#: One key in each batch of this many is hot.
KEYS_PER_HOT_KEY = 100
HOT_SELLER_FRACTION = 3 / 4
HOT_AUCTION_FRACTION = 1 / 2
HOT_BIDDER_FRACTION = 3 / 4
HOT_CHANNEL_FRACTION = 1 / 2

ACTIVE_PERSONS = 1000
AUCTIONS_IN_FLIGHT = 100
ID_LEAD = 10  #: Ids this far ahead of the newest may be named before they exist.

PERSON_BYTES = 200
AUCTION_BYTES = 500
BID_BYTES = 100
#: A bid without its `extra` counts as four longs, whatever its channel and url.
BID_FIXED_BYTES = 32
LONG_BYTES = 8

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
CHARACTERS_PER_SPACE = 13  #: One character in this many of a random string is a space.


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


def events_until_auctions_turn_over() -> int:
    """How many events it takes until as many new auctions have opened as are in flight."""
    return AUCTIONS_IN_FLIGHT * EVENTS_PER_EPOCH // AUCTIONS_PER_EPOCH


def prices(draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Prices in cents from draws in [0, 1): 100 to 100,000,000, even on a logarithmic scale.

    >>> prices(np.array([0.0, 0.5, 0.999999])).tolist()
    [100, 100000, 99998618]
    """
    return np.floor(10.0 ** (6.0 * draws) * 100.0 + 0.5).astype(np.int64)


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
