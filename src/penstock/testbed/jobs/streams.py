"""The streams of events by name; `producer` sends them, the jobs read them."""

from collections.abc import Callable
from functools import partial

from penstock.core.errors import ConfigError, unknown
from penstock.testbed.jobs.nexmark_events import NexmarkEvents, NexmarkKind
from penstock.testbed.jobs.photos import PhotoEvents
from penstock.testbed.jobs.playback import EventStream
from penstock.testbed.jobs.state_size import KeyedStrings
from penstock.testbed.jobs.timeline import Events, Timeline, Times
from penstock.testbed.jobs.tissue import TissueEvents
from penstock.testbed.jobs.traffic import VehiclePositions
from penstock.testbed.jobs.wordcount import TextLines
from penstock.testbed.jobs.ysb import AdEvents

#: From a seed and the times of events.
_TIMED: dict[str, Callable[[int, Callable[[Events], Times]], EventStream]] = {
    "nexmark": NexmarkEvents,
    "nexmark-auctions": partial(NexmarkKind, "auction"),
    "nexmark-persons": partial(NexmarkKind, "person"),
    "ads": AdEvents,
    "photos": PhotoEvents,
    "tissue": TissueEvents,
}
#: From a seed alone: their events bear no time.
_UNTIMED: dict[str, Callable[[int], EventStream]] = {"words": TextLines, "strings": KeyedStrings}

STREAMS = (*_TIMED, *_UNTIMED, "vehicles")


def open_stream(name: str, seed: int, timeline: Timeline, base_ms: int) -> EventStream:
    """The stream of that name, its events due by the timeline from `base_ms` on.

    >>> open_stream("nexmrk", 1, Timeline([1.0]), 0)
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: unknown stream 'nexmrk': did you mean 'nexmark'? Known: ...
    """
    if seed < 0:
        raise ConfigError(f"the seed must not be negative, not {seed}")
    if name in _TIMED:
        return _TIMED[name](seed, partial(timeline.due_ms, base_ms=base_ms))
    if name in _UNTIMED:
        return _UNTIMED[name](seed)
    if name == "vehicles":
        return VehiclePositions(seed, timeline, base_ms)
    raise unknown("stream", name, STREAMS)
