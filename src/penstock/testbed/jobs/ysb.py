"""The Yahoo Streaming Benchmark: views of advertisements, counted per campaign and ten seconds.

Ten advertisements belong to each of 100 campaigns. An event says who did what with which of them:
a third are views, and only views count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis
from penstock.testbed.jobs.timeline import Events, SeededStream, Times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
USERS = 100
PAGES = 100
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
COUNTED_TYPE = "view"

WINDOW_S = 10
WATERMARK_S = 2

#: The campaigns are part of the benchmark, not of one stream: the job that reads a topic does not
#: know with which seed the topic was filled.
CATALOGUE_SEED = 1

_EVENT = (
    b'{"user_id":"%s","page_id":"%s","ad_id":"%s","ad_type":"%s","event_type":"%s",'
    b'"event_time":"%d","ip_address":"1.2.3.4"}'
)


def views_per_campaign(source: DataFrame) -> DataFrame:
    """From events in `value` to campaign_id, views, starttime and endtime of each window.

    A stream of it is in append mode: a window is given once, as soon as the watermark, 2 s behind
    the newest event, has passed its end.
    """
    from pyspark.sql import functions as f

    millis = "try_cast(event_time AS BIGINT)"
    events = parse_json(
        source,
        "ad_id STRING, event_type STRING, event_time STRING",
        observation="ads",
        required=("ad_id", "event_type", timestamp_of_millis(millis)),
    )
    views = events.where(f.col("event_type") == COUNTED_TYPE).selectExpr(
        "ad_id", f"{timestamp_of_millis(millis)} AS at"
    )
    campaigns = campaign_table(source.sparkSession)
    counted = (
        views.withWatermark("at", f"{WATERMARK_S} seconds")
        .join(f.broadcast(campaigns), "ad_id")
        .groupBy("campaign_id", f.window("at", f"{WINDOW_S} seconds").alias("window"))
        .agg(f.count(f.lit(1)).alias("views"))
    )
    times = "window.start AS starttime", "window.end AS endtime"
    return counted.selectExpr("campaign_id", "views", *times)


def campaign_table(spark: SparkSession) -> DataFrame:
    """Which campaign each advertisement belongs to: ad_id and campaign_id, 1,000 rows."""
    rows = ", ".join(f"('{ad}', '{campaign}')" for ad, campaign in campaign_of_ad().items())
    # Literals stay inside the engine; rows from Python would start its workers for each batch.
    return spark.sql(f"SELECT * FROM VALUES {rows} AS campaigns(ad_id, campaign_id)")


def campaign_of_ad() -> dict[str, str]:
    """The campaign of each advertisement, ten in a row of the same one.

    >>> campaigns = list(campaign_of_ad().values())
    >>> len(campaigns), len(set(campaigns)), campaigns[0] == campaigns[9] != campaigns[10]
    (1000, 100, True)
    """
    rng = np.random.default_rng([CATALOGUE_SEED, 2])
    campaigns = _uuids(rng, CAMPAIGNS)
    ads = _uuids(rng, CAMPAIGNS * ADS_PER_CAMPAIGN)
    return {ad: campaigns[i // ADS_PER_CAMPAIGN] for i, ad in enumerate(ads)}


class AdEvents(SeededStream):
    """The events of one seed; users, pages, advertisements and kinds are drawn evenly.

    >>> block = AdEvents(seed=1, due_ms=lambda events: 1_700_000_000_000 + events).block(0)
    >>> len(block), block[7][-52:]
    (5000, b'"event_time":"1700000000007","ip_address":"1.2.3.4"}')
    """

    def __init__(self, seed: int, due_ms: Callable[[Events], Times]) -> None:
        super().__init__(seed, due_ms)
        rng = self.rng_of_all()
        self._users = [user.encode() for user in _uuids(rng, USERS)]
        self._pages = [page.encode() for page in _uuids(rng, PAGES)]
        self._ads = [ad.encode() for ad in campaign_of_ad()]

    def block(self, number: int) -> list[bytes]:
        rng, events = self.rng_of(number), self.events_of(number)

        def drawn(values: list[bytes]) -> list[bytes]:
            picked = rng.integers(len(values), size=self.block_size)
            return list(map(values.__getitem__, picked.tolist()))

        rows = zip(
            drawn(self._users),
            drawn(self._pages),
            drawn(self._ads),
            drawn([each.encode() for each in AD_TYPES]),
            drawn([each.encode() for each in EVENT_TYPES]),
            self._due_ms(events).tolist(),
            strict=True,
        )
        return [_EVENT % row for row in rows]


def _uuids(rng: np.random.Generator, count: int) -> list[str]:
    return [str(UUID(bytes=rng.bytes(16), version=4)) for _ in range(count)]
