"""A job whose state is as large as wanted: one random string for each key, in RocksDB.

As in Varga et al. (2021), section 5.1, the number of keys and the length of their strings are
chosen. State grows until each key has come once, then it stays: 500,000 keys of 4,096 characters
are 2 GB. A rescale of the job has to load that state elsewhere, which is what takes the time.

The original also gives the age of each record when it leaves the job; that is left out, since
penstock measures delays by itself.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.errors import ConfigError
from penstock.testbed.jobs.parsing import parse_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = 100_000
#: Characters of a string; with its key and what Spark adds, a little more in the store.
STRING_CHARACTERS = 4_096

#: About this much is drawn at once.
BLOCK_CHARACTERS = 1 << 22

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8
)
_EVENT = b'{"number":%d,"key":%d,"text":"%s"}'


def state_settings(*, changelog: bool) -> dict[str, str]:
    """What Spark needs to keep such state, to be set before the query starts.

    With a changelog a commit writes what a batch has changed, and a full snapshot follows now and
    then in the background; without, each commit writes the files of the store that are new. Strings
    are not compressed, so that their size is what was asked for, and a batch without data, which
    would commit once more, is not run.
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
    strings = parse_json(
        source,
        "number BIGINT, key BIGINT, text STRING",
        observation="strings",
        required=("number", "key", "text"),
    )
    return kept_strings(strings)


def kept_strings(strings: DataFrame) -> DataFrame:
    """The state itself: of the columns number, key and text, the text with the highest number."""
    from pyspark.sql import functions as f

    return strings.groupBy("key").agg(
        f.count(f.lit(1)).alias("updates"), f.max_by("text", "number").alias("text")
    )


class KeyedStrings:
    """Random strings of one length, each for one key; every key comes once in `keys` events.

    Parameters
    ----------
    seed
        The same seed gives the same bytes.
    keys
        How many keys there are, from 0.
    characters
        The length of each string. 64 letters, digits and signs are drawn evenly: six random bits in
        a byte, so that no compression takes away much.

    Examples
    --------
    Each of four keys in the first four events, and again in the next four:

    >>> import json
    >>> events = map(json.loads, KeyedStrings(seed=1, keys=4, characters=8).block(0)[:8])
    >>> [event["key"] for event in events]
    [0, 3, 2, 1, 0, 3, 2, 1]
    """

    def __init__(self, seed: int, keys: int = KEYS, characters: int = STRING_CHARACTERS) -> None:
        if not 1 <= keys <= 10**9:
            raise ConfigError(f"the number of keys must be between 1 and 1e9, not {keys}")
        if not 1 <= characters <= BLOCK_CHARACTERS:
            raise ConfigError(
                f"strings must have between 1 and {BLOCK_CHARACTERS} characters, not {characters}"
            )
        self._seed = seed
        self._keys = keys
        self._characters = characters

    @cached_property
    def block_size(self) -> int:
        return min(max(BLOCK_CHARACTERS // self._characters, 1), 5_000)

    @cached_property
    def _stride(self) -> int:
        """How far the next key is: near the golden section, so that neighbours lie apart.

        Without a common divisor with the number of keys, so that each comes before one returns.
        """
        stride = max(round(self._keys * 0.618), 1)
        while gcd(stride, self._keys) != 1:
            stride += 1
        return stride

    def block(self, number: int) -> list[bytes]:
        """Events `number * block_size` up to the next block's first."""
        rng = np.random.default_rng([self._seed, 0, number])
        size, length = self.block_size, self._characters
        bits = np.frombuffer(rng.bytes(size * length), dtype=np.uint8) & 63
        text = _ALPHABET[bits].tobytes()
        first = number * size
        return [
            _EVENT
            % (
                first + i,
                (first + i) * self._stride % self._keys,
                text[i * length : (i + 1) * length],
            )
            for i in range(size)
        ]
