"""WordCount: lines of words, and how often each word came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.testbed.jobs.timeline import SeededStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VOCABULARY = 10_000
WORDS_PER_LINE = 10
LETTERS_PER_WORD = range(3, 11)


def word_counts(source: DataFrame) -> DataFrame:
    """From lines to `word`, in lower case, and `count`. A stream of it is in update mode."""
    from pyspark.sql import functions as f

    line = f.lower(f.trim(f.col("value").cast("string")))
    words = source.select(f.explode(f.split(line, r"\s+")).alias("word"))
    return words.where("word <> ''").groupBy("word").count()


class TextLines(SeededStream):
    """An endless text, the same for the same seed; the k-th commonest word has weight 1/k.

    >>> line = TextLines(seed=1).block(0)[0]
    >>> len(line.split()), line == TextLines(seed=1).block(0)[0]
    (10, True)
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng_of_all()
        letters = rng.integers(ord("a"), ord("z") + 1, size=1 << 16, dtype=np.uint8).tobytes()
        lengths = rng.integers(LETTERS_PER_WORD.start, LETTERS_PER_WORD.stop, size=VOCABULARY)
        starts = rng.integers(len(letters) - LETTERS_PER_WORD.stop, size=VOCABULARY)
        self._words = [
            letters[start : start + length]
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        weights = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
        self._shares = weights / weights[-1]

    def block(self, number: int) -> list[bytes]:
        drawn = self.rng_of(number).random(self.block_size * WORDS_PER_LINE)
        words = list(map(self._words.__getitem__, np.searchsorted(self._shares, drawn).tolist()))
        return [
            b" ".join(words[start : start + WORDS_PER_LINE])
            for start in range(0, len(words), WORDS_PER_LINE)
        ]
