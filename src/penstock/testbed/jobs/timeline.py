"""When each event of a stream is due, if the rate is given second by second.

The n-th event (from 0) is due when the rates so far add up to more than n, so the times are known
before the stream starts: an event says when it was due, not when a busy machine got round to it.
"""

from collections.abc import Callable, Sequence
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import ConfigError

Times = NDArray[np.int64]
Events = NDArray[np.int64]


class Timeline:
    """The due times of a stream, in seconds after its start.

    Two events in the first second, none in the second, four in the third:

    >>> timeline = Timeline([2.0, 0.0, 4.0])
    >>> timeline.events, timeline.duration_s
    (6, 3.0)
    >>> timeline.due_s(np.arange(6)).tolist()
    [0.0, 0.5, 2.0, 2.25, 2.5, 2.75]
    >>> [timeline.due_by(elapsed_s) for elapsed_s in (0.0, 0.6, 1.5, 2.3, 9.0)]
    [0, 2, 2, 4, 6]
    """

    __slots__ = ("_last_rate_rps", "_rates_rps", "_sums", "duration_s", "events")

    def __init__(self, rates_rps: Sequence[float]) -> None:
        for second, rate_rps in enumerate(rates_rps):
            if not 0.0 <= rate_rps < inf:
                raise ConfigError(
                    f"the rate of second {second} must be finite and not negative, not {rate_rps}"
                )
        self._rates_rps = np.asarray(rates_rps, dtype=np.float64)
        self._sums = np.concatenate(([0.0], np.cumsum(self._rates_rps)))
        positive = self._rates_rps[self._rates_rps > 0.0]
        self._last_rate_rps = float(positive[-1]) if positive.size else 1.0
        self.duration_s = float(len(rates_rps))
        self.events = _whole(float(self._sums[-1]))

    def due_s(self, events: Events) -> NDArray[np.float64]:
        """When each of the events is due. Beyond the end, the last rate goes on."""
        seconds = np.searchsorted(self._sums, events, side="right") - 1
        inside = seconds < self._rates_rps.size
        rates_rps = np.full(seconds.shape, self._last_rate_rps)
        rates_rps[inside] = self._rates_rps[seconds[inside]]
        return np.asarray(seconds + (events - self._sums[seconds]) / rates_rps)

    def due_by(self, elapsed_s: float) -> int:
        """How many events are due before that moment."""
        if not 0.0 <= elapsed_s < self.duration_s:
            return 0 if elapsed_s < 0.0 else self.events
        second = int(elapsed_s)
        done = float(self._sums[second])
        return _whole(done + float(self._rates_rps[second]) * (elapsed_s - second))

    def due_ms(self, events: Events, base_ms: int) -> Times:
        """When each of the events is due, in whole milliseconds since the epoch."""
        # Half a nanosecond: what is due at 0.29 s must not become 289 ms for a rounding error.
        return base_ms + np.floor(self.due_s(events) * 1e3 + 5e-7).astype(np.int64)


class SeededStream:
    """Events in blocks: the same seed and the same times give the same bytes.

    The random numbers of a block depend on the seed and the block's number alone, so it does not
    matter where a stream starts or how it is cut. `due_ms` gives the times of events, in
    milliseconds since the epoch, from their numbers.
    """

    block_size: int = 5_000

    def __init__(
        self, seed: int, due_ms: Callable[[Events], Times] = lambda events: events
    ) -> None:
        self._seed = seed
        self._due_ms = due_ms

    def rng_of_all(self) -> np.random.Generator:
        """Draws what all blocks share; it has no random number in common with any of them."""
        return np.random.default_rng([self._seed, 1])

    def rng_of(self, number: int) -> np.random.Generator:
        """Draws one block."""
        return np.random.default_rng([self._seed, 0, number])

    def events_of(self, number: int) -> Events:
        return number * self.block_size + np.arange(self.block_size, dtype=np.int64)


def _whole(records: float) -> int:
    # A sum of thousands of fractions may miss a whole number by a little; that is no event more.
    return ceil(records - 1e-6)
