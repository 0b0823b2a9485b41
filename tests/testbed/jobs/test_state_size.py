"""Strings that make up a state of a chosen size."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import pytest

from penstock.testbed.jobs.state_size import KeyedStrings, state_settings


def first(stream: KeyedStrings, count: int) -> list[bytes]:
    blocks = -(-count // stream.block_size)
    return [value for number in range(blocks) for value in stream.block(number)][:count]


@pytest.mark.parametrize("keys", [1, 2, 7, 1000, 1618])
def test_every_key_comes_once_before_one_comes_again(keys: int) -> None:
    events = list(map(json.loads, first(KeyedStrings(seed=1, keys=keys, characters=4), 3 * keys)))
    for turn in range(3):
        part = events[turn * keys : (turn + 1) * keys]
        assert Counter(event["key"] for event in part) == Counter(range(keys))


def test_events_are_numbered_across_blocks() -> None:
    stream = KeyedStrings(seed=1, keys=10, characters=1000)
    assert stream.block_size == 4194  # 4 MiB of characters at once
    numbers = [json.loads(value)["number"] for value in first(stream, 4200)]
    assert numbers == list(range(4200))


def test_strings_have_the_length_asked_for_and_hardly_compress() -> None:
    texts = [json.loads(value)["text"] for value in first(KeyedStrings(1, 50, 4096), 50)]
    assert {len(text) for text in texts} == {4096}
    assert len(set(texts)) == 50
    # Six random bits in each byte: three quarters are left at best.
    packed = len(zlib.compress("".join(texts).encode()))
    assert 0.74 < packed / (50 * 4096) < 0.80


def test_a_block_depends_on_seed_and_number_alone() -> None:
    block = KeyedStrings(seed=5, keys=9, characters=100).block(2)
    assert block == KeyedStrings(seed=5, keys=9, characters=100).block(2)
    assert block != KeyedStrings(seed=6, keys=9, characters=100).block(2)


def test_the_changelog_is_all_that_the_two_settings_differ_in() -> None:
    changed = set(state_settings(changelog=True).items()) ^ set(
        state_settings(changelog=False).items()
    )
    name = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    assert changed == {(name, "true"), (name, "false")}
