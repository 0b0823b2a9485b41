"""Inputs that are nearly right: edits of good ones."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.fuzz.targets import Target

MOST_EDITS = 6


@st.composite
def mutated(draw: DrawFn, target: Target) -> bytes:
    """A seed of the target after some edits, or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(target.seeds))
    for _ in range(draw(st.integers(1, MOST_EDITS))):
        first = draw(st.integers(0, len(data)))
        last = min(len(data), first + draw(st.sampled_from((0, 0, 1, 2, 5, 20, 1000))))
        kind = draw(st.sampled_from(("token", "token", "cut", "byte", "copy", "number")))
        piece = b""
        if kind == "token" and target.tokens:
            piece = draw(st.sampled_from(target.tokens))
        elif kind == "byte":
            piece = draw(st.binary(min_size=1, max_size=4))
        elif kind == "copy":
            piece = data[first:last] * 2
        elif kind == "number":  # in the place of one that is there
            first = next((n for n in range(first, len(data)) if data[n : n + 1].isdigit()), first)
            last = next(
                (n for n in range(first, len(data)) if not data[n : n + 1].isdigit()), first
            )
            piece = draw(st.sampled_from(target.tokens or (b"-1",)))
        data = data[:first] + piece + data[last:]
    return data
