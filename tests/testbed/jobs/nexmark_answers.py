"""The answers of the Nexmark queries, in plain Python.

Each function takes the bodies of all events by kind and gives the rows of the answer, times in ms.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.conformance.nexmark_reference import time_of_day

Body = dict[str, Any]
Events = dict[str, list[Body]]
Rows = Iterable[tuple[Any, ...]]

WINDOW_MS, SLIDE_MS, GAP_MS = 10_000, 2_000, 10_000
EURO = Decimal("0.908")


def day(bid: Body, form: str = "%Y-%m-%d") -> str:
    return datetime.fromtimestamp(bid["dateTime"] / 1000, UTC).strftime(form)


def window_start(at_ms: int) -> int:
    return at_ms - at_ms % WINDOW_MS


def q0(events: Events) -> Rows:
    names = ("auction", "bidder", "price", "dateTime", "extra")
    return [tuple(bid[name] for name in names) for bid in events["bid"]]


def q1(events: Events) -> Rows:
    return [(row[0], row[1], EURO * row[2], *row[3:]) for row in q0(events)]


def q2(events: Events) -> Rows:
    return [(b["auction"], b["price"]) for b in events["bid"] if b["auction"] % 123 == 0]


def q3(events: Events) -> Rows:
    return _sales(events, lambda auction: auction["category"] == 10)


def q3_thesis(events: Events) -> Rows:
    return _sales(events, bool)


def _sales(events: Events, wanted: Callable[[Body], bool]) -> Rows:
    for auction in filter(wanted, events["auction"]):
        for person in events["person"]:
            if auction["seller"] == person["id"] and person["state"] in {"OR", "ID", "CA"}:
                yield person["name"], person["city"], person["state"], auction["id"]


def q5(events: Events) -> Rows:
    windows: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for bid in events["bid"]:
        last = bid["dateTime"] // SLIDE_MS * SLIDE_MS
        for start in range(last, last - WINDOW_MS, -SLIDE_MS):
            windows[start][bid["auction"]] += 1
    for start, counts in windows.items():
        for auction, count in counts.items():
            if count == max(counts.values()):
                yield auction, count, start, start + WINDOW_MS


def q7(events: Events) -> Rows:
    highest: dict[int, int] = {}
    for bid in events["bid"]:
        start = window_start(bid["dateTime"])
        highest[start] = max(bid["price"], highest.get(start, 0))
    names = ("auction", "price", "bidder", "dateTime", "extra")
    for bid in events["bid"]:
        if bid["price"] == highest[window_start(bid["dateTime"])]:
            yield tuple(bid[name] for name in names)


def q8(events: Events) -> Rows:
    opened = {(a["seller"], window_start(a["dateTime"])) for a in events["auction"]}
    registered = {(p["id"], p["name"], window_start(p["dateTime"])) for p in events["person"]}
    return [each for each in registered if (each[0], each[2]) in opened]


def q10(events: Events) -> Rows:
    bids = zip(q0(events), events["bid"], strict=True)
    return [(*row, day(bid), day(bid, "%H:%M")) for row, bid in bids]


def q11(events: Events) -> Rows:
    by_bidder: defaultdict[int, list[int]] = defaultdict(list)
    for bid in events["bid"]:
        by_bidder[bid["bidder"]].append(bid["dateTime"])
    for bidder, times in by_bidder.items():
        session: list[int] = []
        for at_ms in sorted(times):
            if session and at_ms > session[-1] + GAP_MS:
                yield bidder, len(session), session[0], session[-1] + GAP_MS
                session = []
            session.append(at_ms)
        yield bidder, len(session), session[0], session[-1] + GAP_MS


def q13(events: Events) -> Rows:
    return [(*row[:4], str(row[0] % 10_000)) for row in q0(events)]


def q14(events: Events) -> Rows:
    for auction, bidder, price, at_ms, extra in q0(events):
        if 1_000_000 < EURO * price < 50_000_000:
            hour = datetime.fromtimestamp(at_ms / 1000, UTC).hour
            yield auction, bidder, EURO * price, time_of_day(hour), at_ms, extra, extra.count("c")


def _rank(bid: Body) -> int:
    return 1 if bid["price"] < 10_000 else 2 if bid["price"] < 1_000_000 else 3


def _by(bids: Iterable[Body], key: Callable[[Body], Any]) -> Iterator[tuple[Any, list[Body]]]:
    groups: defaultdict[Any, list[Body]] = defaultdict(list)
    for bid in bids:
        groups[key(bid)].append(bid)
    return iter(groups.items())


def _ranks(bids: list[Body]) -> list[list[Body]]:
    return [bids, *([bid for bid in bids if _rank(bid) == rank] for rank in (1, 2, 3))]


def _counts(bids: list[Body]) -> tuple[int, ...]:
    groups = _ranks(bids)
    distinct = [len({b[key] for b in each}) for key in ("bidder", "auction") for each in groups]
    return (*map(len, groups), *distinct)


def q15(events: Events) -> Rows:
    return [(date, *_counts(bids)) for date, bids in _by(events["bid"], day)]


def q16(events: Events) -> Rows:
    for key, bids in _by(events["bid"], lambda bid: (bid["channel"], day(bid))):
        yield (*key, max(day(bid, "%H:%M") for bid in bids), *_counts(bids))


def q17(events: Events) -> Rows:
    for key, bids in _by(events["bid"], lambda bid: (bid["auction"], day(bid))):
        prices = [bid["price"] for bid in bids]
        total = sum(prices)
        figures = (min(prices), max(prices), total / len(prices), total)
        yield (*key, *map(len, _ranks(bids)), *figures)


def q18(events: Events) -> Rows:
    names = ("price", "channel", "url", "dateTime", "extra")
    for key, bids in _by(events["bid"], lambda bid: (bid["bidder"], bid["auction"])):
        last = max(bids, key=lambda bid: (bid["dateTime"], bid["price"]))
        yield (*key, *(last[name] for name in names))


def q19(events: Events) -> Rows:
    for auction, bids in _by(events["bid"], lambda bid: bid["auction"]):
        order = sorted(bids, key=lambda bid: (-bid["price"], bid["dateTime"], bid["bidder"]))
        for rank, bid in enumerate(order[:10], start=1):
            yield auction, rank, bid["price"], bid["bidder"], bid["dateTime"]


def q20(events: Events) -> Rows:
    auctions = {each["id"]: each for each in events["auction"] if each["category"] == 10}
    for row in q0(events):
        if found := auctions.get(row[0]):
            yield (*row[:4], found["itemName"], found["seller"], found["category"])


def q21(events: Events) -> Rows:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for bid in events["bid"]:
        named = re.search(r"(&|^)channel_id=([^&]*)", bid["url"])
        found = known.get(bid["channel"].lower()) or (named and named[2])
        if found:
            yield bid["auction"], bid["bidder"], bid["price"], bid["channel"], found


def q22(events: Events) -> Rows:
    for bid in events["bid"]:
        parts = bid["url"].split("/")[3:6]
        yield bid["auction"], bid["bidder"], bid["price"], bid["channel"], *parts
