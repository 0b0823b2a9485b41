"""Nexmark events as Kafka values: drawn in blocks, the same for the same seed, fast.

An event is one JSON object, `event_type` 0 with a `person`, 1 with an `auction`, 2 with a `bid`;
times are milliseconds since the epoch. Numbers are drawn for 5,000 events at once, text is sliced
from pools, and each event is one formatting of bytes.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from penstock.testbed.jobs import nexmark
from penstock.testbed.jobs.timeline import Events, SeededStream, Times

EPOCHS_PER_BLOCK = 100
EVENTS_PER_BLOCK = EPOCHS_PER_BLOCK * nexmark.EVENTS_PER_EPOCH
POOL_CHARACTERS = 1 << 16

_PERSON = (
    b'{"event_type":0,"person":{"id":%d,"name":"%s","emailAddress":"%s","creditCard":"%s",'
    b'"city":"%s","state":"%s","dateTime":%d,"extra":"%s"}}'
)
_AUCTION = (
    b'{"event_type":1,"auction":{"id":%d,"itemName":"%s","description":"%s","initialBid":%d,'
    b'"reserve":%d,"dateTime":%d,"expires":%d,"seller":%d,"category":%d,"extra":"%s"}}'
)
_BID = b'{"event_type":2,"bid":{"auction":%d,"bidder":%d,"price":%d,%s,"dateTime":%d,"extra":"%s"}}'

#: Events of each kind per epoch, in their order.
_SIZES = (nexmark.PERSONS_PER_EPOCH, nexmark.AUCTIONS_PER_EPOCH, nexmark.BIDS_PER_EPOCH)

Generator = np.random.Generator
Kind = Literal["person", "auction"]  #: What has a stream of its own too.


class NexmarkEvents(SeededStream):
    """The stream of one seed.

    >>> block = NexmarkEvents(seed=1, due_ms=lambda events: events // 10).block(0)
    >>> len(block), block[0][:33]
    (5000, b'{"event_type":0,"person":{"id":10')
    """

    block_size = EVENTS_PER_BLOCK

    def __init__(self, seed: int, due_ms: Callable[[Events], Times]) -> None:
        super().__init__(seed, due_ms)
        rng = self.rng_of_all()
        self._letters = _characters(rng, spaces=False)
        self._words = _characters(rng, spaces=True)
        self._channels = self._draw_channels(rng)

    def block(self, number: int) -> list[bytes]:
        return _interleave(*zip(self.kinds(number), _SIZES, strict=True))

    def kinds(self, number: int, count: int = 3) -> list[list[bytes]]:
        """The persons, auctions and bids of a block, or the first `count` of these."""
        rng, events = self.rng_of(number), self.events_of(number)
        by_epoch = self._due_ms(events).reshape(EPOCHS_PER_BLOCK, nexmark.EVENTS_PER_EPOCH)
        person_ms, auction_ms, bid_ms = np.split(by_epoch, np.cumsum(_SIZES[:2]), axis=1)
        first = number * EVENTS_PER_BLOCK
        epochs = range(first, first + EVENTS_PER_BLOCK, nexmark.EVENTS_PER_EPOCH)
        sellers = np.array([nexmark.hot_seller(event) for event in epochs])
        people = _bounds([nexmark.cold_persons(event) for event in epochs])
        kinds = [self._persons(rng, epochs, person_ms)]
        if count > 1:
            kinds.append(self._auctions(rng, epochs, auction_ms, sellers, people))
        if count > 2:
            kinds.append(self._bids(rng, epochs, bid_ms, people))
        return kinds

    def _persons(self, rng: Generator, epochs: range, due_ms: Times) -> list[bytes]:
        count = len(epochs)
        first_names = rng.integers(len(nexmark.FIRST_NAMES), size=count).tolist()
        last_names = rng.integers(len(nexmark.LAST_NAMES), size=count).tolist()
        mailboxes = self._strings(rng, nexmark.LONGEST_MAILBOX, count)
        hosts = self._strings(rng, nexmark.LONGEST_MAIL_HOST, count)
        cards = rng.integers(10_000, size=(count, 4)).tolist()
        cities = rng.integers(len(nexmark.CITIES), size=count).tolist()
        states = rng.integers(len(nexmark.STATES), size=count).tolist()
        first, last = nexmark.FIRST_NAMES, nexmark.LAST_NAMES
        people = [
            (
                f"{first[first_names[i]]} {last[last_names[i]]}".encode(),
                b"%s@%s.com" % (mailboxes[i], hosts[i]),
                b"%04d %04d %04d %04d" % tuple(cards[i]),
                nexmark.CITIES[cities[i]].encode(),
                nexmark.STATES[states[i]].encode(),
            )
            for i in range(count)
        ]
        fixed = [nexmark.LONG_BYTES + sum(map(len, person)) for person in people]
        extras = self._extras(rng, fixed, nexmark.PERSON_BYTES)
        rows = zip(epochs, people, due_ms.ravel().tolist(), extras, strict=True)
        return [
            _PERSON % (nexmark.last_person_id(event), *person, at_ms, extra)
            for event, person, at_ms, extra in rows
        ]

    def _auctions(
        self,
        rng: Generator,
        epochs: range,
        due_ms: Times,
        hot_sellers: NDArray[np.int64],
        people: NDArray[np.int64],
    ) -> list[bytes]:
        each = nexmark.AUCTIONS_PER_EPOCH
        count = len(epochs) * each
        first = np.asarray(epochs)[:, None] + nexmark.PERSONS_PER_EPOCH
        opening = (first + np.arange(each)).ravel()
        at_ms = due_ms.ravel()
        turnover_ms = self._due_ms(opening + nexmark.events_until_auctions_turn_over()) - at_ms
        lengths_ms = 1 + (rng.random(count) * np.maximum(2 * turnover_ms, 1)).astype(np.int64)
        sellers = _mostly_hot(rng, nexmark.HOT_SELLER_FRACTION, hot_sellers, people, each)
        names = self._strings(rng, nexmark.LONGEST_ITEM_NAME, count)
        descriptions = self._strings(rng, nexmark.LONGEST_DESCRIPTION, count)
        first_bids = nexmark.prices(rng.random(count))
        reserves = first_bids + nexmark.prices(rng.random(count))
        kinds = nexmark.CATEGORIES
        categories = rng.integers(kinds.start, kinds.stop, size=count).tolist()
        fixed = [
            6 * nexmark.LONG_BYTES + len(name) + len(text)
            for name, text in zip(names, descriptions, strict=True)
        ]
        extras = self._extras(rng, fixed, nexmark.AUCTION_BYTES)
        ids = [nexmark.last_auction_id(event) for event in opening.tolist()]
        rows = zip(
            ids, names, descriptions, first_bids.tolist(), reserves.tolist(), at_ms.tolist(),
            (at_ms + lengths_ms).tolist(), sellers.tolist(), categories, extras,
            strict=True,
        )  # fmt: skip
        return [_AUCTION % row for row in rows]

    def _bids(
        self, rng: Generator, epochs: range, due_ms: Times, people: NDArray[np.int64]
    ) -> list[bytes]:
        each = nexmark.BIDS_PER_EPOCH
        count = len(epochs) * each
        bidding = [event + nexmark.EVENTS_PER_EPOCH - 1 for event in epochs]
        hot_auctions = np.array([nexmark.hot_auction(event) for event in bidding])
        hot_bidders = np.array([nexmark.hot_bidder(event) for event in bidding])
        open_auctions = _bounds([nexmark.cold_auctions(event) for event in bidding])
        auctions = _mostly_hot(rng, nexmark.HOT_AUCTION_FRACTION, hot_auctions, open_auctions, each)
        bidders = _mostly_hot(rng, nexmark.HOT_BIDDER_FRACTION, hot_bidders, people, each)
        hot = len(nexmark.HOT_CHANNELS)
        channels = np.where(
            rng.random(count) < nexmark.HOT_CHANNEL_FRACTION,
            rng.integers(hot, size=count),
            rng.integers(hot, hot + nexmark.COLD_CHANNELS, size=count),
        )
        lengths = nexmark.extra_lengths(nexmark.BID_FIXED_BYTES, nexmark.BID_BYTES)
        extras = _slices(rng, self._letters, rng.integers(lengths.start, lengths.stop, size=count))
        prices = nexmark.prices(rng.random(count)).tolist()
        urls = map(self._channels.__getitem__, channels.tolist())
        rows = zip(
            auctions.tolist(), bidders.tolist(), prices, urls, due_ms.ravel().tolist(), extras,
            strict=True,
        )  # fmt: skip
        return [_BID % row for row in rows]

    def _strings(self, rng: Generator, longest: int, count: int) -> list[bytes]:
        lengths = rng.integers(nexmark.SHORTEST_STRING, longest, size=count)
        return [text.strip() for text in _slices(rng, self._words, lengths)]

    def _extras(self, rng: Generator, fixed_bytes: list[int], average_bytes: int) -> list[bytes]:
        extras = []
        draws = rng.random((len(fixed_bytes), 2)).tolist()
        for fixed, (length_draw, start_draw) in zip(fixed_bytes, draws, strict=True):
            lengths = nexmark.extra_lengths(fixed, average_bytes)
            length = lengths[int(length_draw * len(lengths))]
            start = int(start_draw * (POOL_CHARACTERS - length))
            extras.append(self._letters[start : start + length])
        return extras

    def _draw_channels(self, rng: Generator) -> list[bytes]:
        """Each channel with its url, hot ones first, ready to be put into a bid."""
        hot, cold = len(nexmark.HOT_CHANNELS), nexmark.COLD_CHANNELS
        paths = [
            b"/".join(_slices(rng, self._letters, np.full(3, nexmark.LONGEST_MAIL_HOST)))
            for _ in range(hot + cold)
        ]
        named = (rng.random(cold) < nexmark.CHANNEL_ID_FRACTION).tolist()
        form = b'"channel":"%s","url":"https://www.nexmark.com/%s/item.htm?query=1%s"'
        channels = [
            form % (name.encode(), path, b"")
            for name, path in zip(nexmark.HOT_CHANNELS, paths[:hot], strict=True)
        ]
        for channel, path in enumerate(paths[hot:]):
            query = b"&channel_id=%d" % nexmark.channel_id(channel) if named[channel] else b""
            channels.append(form % (b"channel-%d" % channel, path, query))
        return channels


class NexmarkKind:
    """The persons or auctions of the stream alone, with the same ids and texts.

    Each is due by its own number, and not by that of the event.

    >>> stream = NexmarkKind("auction", seed=1, due_ms=lambda auctions: 1000 * auctions)
    >>> stream.block(0)[4][:40], b'"dateTime":4000,' in stream.block(0)[4]
    (b'{"event_type":1,"auction":{"id":1004,"it', True)
    """

    def __init__(self, kind: Kind, seed: int, due_ms: Callable[[Events], Times]) -> None:
        self._place = get_args(Kind).index(kind)
        each, before = _SIZES[self._place], sum(_SIZES[: self._place])

        def of_kind(events: Events) -> Times:
            epochs, places = np.divmod(events, nexmark.EVENTS_PER_EPOCH)
            return due_ms(each * epochs + np.clip(places - before, 0, each))

        self._events = NexmarkEvents(seed, of_kind)
        self.block_size = EPOCHS_PER_BLOCK * each

    def block(self, number: int) -> list[bytes]:
        return self._events.kinds(number, self._place + 1)[self._place]


def _characters(rng: Generator, *, spaces: bool) -> bytes:
    letters = rng.integers(ord("a"), ord("z") + 1, size=POOL_CHARACTERS, dtype=np.uint8)
    if spaces:
        letters[rng.integers(nexmark.CHARACTERS_PER_SPACE, size=POOL_CHARACTERS) == 0] = ord(" ")
    return letters.tobytes()


def _slices(rng: Generator, pool: bytes, lengths: NDArray[np.int64]) -> list[bytes]:
    starts = rng.integers(len(pool) - int(lengths.max()), size=lengths.size)
    stops = (starts + lengths).tolist()
    return [pool[start:stop] for start, stop in zip(starts.tolist(), stops, strict=True)]


def _bounds(ranges: list[range]) -> NDArray[np.int64]:
    return np.array([(ids.start, ids.stop) for ids in ranges])


def _mostly_hot(
    rng: Generator, hot_fraction: float, hot: NDArray[np.int64], cold: NDArray[np.int64], each: int
) -> NDArray[np.int64]:
    """`each` ids per epoch: the epoch's hot one, or any of its cold ones."""
    count = hot.size * each
    starts, stops = np.repeat(cold[:, 0], each), np.repeat(cold[:, 1], each)
    any_id = starts + (rng.random(count) * (stops - starts)).astype(np.int64)
    return np.where(rng.random(count) < hot_fraction, np.repeat(hot, each), any_id)


def _interleave(*kinds: tuple[list[bytes], int]) -> list[bytes]:
    """Events of each kind, given with their number per epoch, in the order of the epochs."""
    block = [b""] * sum(len(events) for events, _ in kinds)
    step = sum(each for _, each in kinds)
    place = 0
    for events, each in kinds:
        for i in range(each):
            block[place::step] = events[i::each]
            place += 1
    return block
