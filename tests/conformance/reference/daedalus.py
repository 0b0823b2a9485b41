"""Recovery times found in a whole recording, as Daedalus evaluates them afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.policies.algorithms.recovery import GAP_S


class Episode(Struct, frozen=True, gc=False):
    """A time of unusual samples: from its first to `gap_s` after its last, or to the end."""

    first_s: int
    last_s: int
    gap_s: int

    @property
    def length_s(self) -> int:
        """How long it lasted; not positive if it may not be over yet."""
        return self.last_s - self.first_s + 1 - self.gap_s


def episodes(
    at_s: Sequence[int], unusual: Sequence[bool], gap_s: int = GAP_S
) -> tuple[Episode, ...]:
    """Unusual samples, joined where no more than `gap_s` lie between them.

    >>> episodes(range(9), [False, True, True, False, True] + [False] * 4, gap_s=2)
    (Episode(first_s=1, last_s=6, gap_s=2),)
    """
    found: list[Episode] = []
    end_s = at_s[-1] if at_s else 0
    for now_s, is_unusual in zip(at_s, unusual, strict=True):
        if not is_unusual:
            continue
        until_s = min(now_s + gap_s, end_s)
        if found and now_s <= found[-1].last_s + 1:
            found[-1] = Episode(found[-1].first_s, until_s, gap_s)
        else:
            found.append(Episode(now_s, until_s, gap_s))
    return tuple(found)


def mean_length_s(found: Sequence[Episode]) -> float | None:
    """The mean length of the episodes that are over; ``None`` without any."""
    lengths = [episode.length_s for episode in found if episode.length_s > 0]
    return sum(lengths) / len(lengths) if lengths else None
