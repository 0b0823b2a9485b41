"""A job whose state is as large as wanted: one random string for each key, in RocksDB.

As in Varga et al. (2021), section 5.1, the number of keys and the length of their strings are
chosen.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from penstock.testbed.jobs.parsing import parse_json
from penstock.testbed.jobs.timeline import SeededStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = 100_000
#: Characters of a string; with its key and what Spark adds, a little more in the store.
STRING_CHARACTERS = 4_096

BLOCK_CHARACTERS = 1 << 22  #: About this much is drawn at once.

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8
)
_EVENT = b'{"number":%d,"key":%d,"text":"%s"}'


def state_settings(*, changelog: bool) -> dict[str, str]:
    """What Spark needs to keep such state, to be set before the query starts.

    With a changelog a commit writes what a batch has changed; without, the files of the store that
    are new. Strings are not compressed, so that their size is what was asked for.
    """
    store = "spark.sql.streaming.stateStore"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return {
        f"{store}.providerClass": provider,
        f"{store}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        f"{store}.rocksdb.compression": "none",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }


def last_string_per_key(source: DataFrame) -> DataFrame:
    """From events in `value` to key, updates and text: how often each key came, and its last text.

    A stream of it is in update mode, since no key is ever final: each batch gives the keys that it
    has changed.
    """
    schema, required = "number BIGINT, key BIGINT, text STRING", ("number", "key", "text")
    return kept_strings(parse_json(source, schema, observation="strings", required=required))


def kept_strings(strings: DataFrame) -> DataFrame:
    """The state itself: of the columns number, key and text, the text with the highest number."""
    from pyspark.sql import functions as f

    return strings.groupBy("key").agg(
        f.count(f.lit(1)).alias("updates"), f.max_by("text", "number").alias("text")
    )


class KeyedStrings(SeededStream):
    """Random strings of one length, each for one key; every key comes once in `keys` events.

    64 letters, digits and signs are drawn evenly: six random bits in a byte, so that no compression
    takes away much. Each of four keys in the first four events, and again in the next four:

    >>> import json
    >>> events = map(json.loads, KeyedStrings(seed=1, keys=4, characters=8).block(0)[:8])
    >>> [event["key"] for event in events]
    [0, 3, 2, 1, 0, 3, 2, 1]
    """

    def __init__(self, seed: int, keys: int = KEYS, characters: int = STRING_CHARACTERS) -> None:
        super().__init__(seed)
        self._keys = keys
        self._characters = characters
        self.block_size = min(max(BLOCK_CHARACTERS // characters, 1), 5_000)
        # How far the next key is: near the golden section, so that neighbours lie apart; without
        # a common divisor with the number of keys, so that each comes before one returns.
        self._stride = max(round(keys * 0.618), 1)
        while gcd(self._stride, keys) != 1:
            self._stride += 1

    def block(self, number: int) -> list[bytes]:
        length = self._characters
        random = self.rng_of(number).bytes(self.block_size * length)
        text = _ALPHABET[np.frombuffer(random, dtype=np.uint8) & 63].tobytes()
        texts = (text[start : start + length] for start in range(0, len(text), length))
        events = self.events_of(number).tolist()
        return [
            _EVENT % (event, event * self._stride % self._keys, string)
            for event, string in zip(events, texts, strict=True)
        ]
