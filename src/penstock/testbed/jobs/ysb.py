"""The facts of the Yahoo Streaming Benchmark: advertisements viewed, counted per campaign.

The pipeline keeps the views (one event in three), looks up the campaign of the advertisement, and
counts per campaign and window of ten seconds.

References
----------
github.com/yahoo/streaming-benchmarks at d1aaf6bb. The shorter events of the Berlin experiments
(Phoebe, Daedalus) are `short_event`.
"""

from __future__ import annotations

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
USERS = 100
PAGES = 100
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
KEPT_EVENT_TYPE = "view"
IP_ADDRESS = "1.2.3.4"

WINDOW_MS = 10_000
#: With the skew option: every event is off by up to this much either way ...
SKEW_MS = 50
#: ... and one in so many is late, by up to a minute.
EVENTS_PER_LATE_EVENT = 100_000
LATEST_MS = 60_000

BERLIN_WATERMARK_S = 2
BERLIN_ID_LENGTH = 16


def window_start_ms(event_time_ms: int) -> int:
    """The start of the window that the event falls in.

    >>> window_start_ms(1_700_000_009_999), window_start_ms(1_700_000_010_000)
    (1700000000000, 1700000010000)
    """
    return event_time_ms // WINDOW_MS * WINDOW_MS


def campaign_of(ad: int) -> int:
    """The campaign that an advertisement belongs to: ten in a row share one.

    >>> campaign_of(0), campaign_of(9), campaign_of(10), campaign_of(999)
    (0, 0, 1, 99)
    """
    return ad // ADS_PER_CAMPAIGN


def short_event(ad_id: str, event_type: str, event_time_ms: int) -> bytes:
    """An event of the Berlin variant: about 60 bytes, its time in whole seconds as a string.

    >>> short_event("a1b2c3d4e5f6g7h8", "view", 1_700_000_012_345)
    b'{"ts":"1700000012","id":"a1b2c3d4e5f6g7h8","et":"view"}'
    """
    return b'{"ts":"%d","id":"%s","et":"%s"}' % (
        event_time_ms // 1000,
        ad_id.encode(),
        event_type.encode(),
    )
