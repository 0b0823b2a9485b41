"""What a batch costs besides its records, from how much more the records of small batches cost."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

BATCHES = 400.0  #: How many batches are remembered.
FEWEST = 3.0  #: With fewer nothing is known.
#: Added to the variances: sizes that vary by a tenth (squared: this) say no more than noise.
DOUBT = 0.01


class Overhead(Struct, frozen=True, gc=False, omit_defaults=True):
    """Least squares over batches, from moments that forget.

    Where a core-second of work takes `wave_s`, a batch takes ``whole + shared x wave_s +
    cost x records x wave_s`` seconds: a part of its overhead is shared by all executors, such as
    starting tasks, and a part is not, such as the work of the driver. Divided by ``records x
    wave_s``, this is a plane over ``1 / (records x wave_s)`` and ``1 / records``. While all batches
    are about as large, overhead and the cost of records cannot be distinguished; it is taken as 0.

    >>> known = Overhead()
    >>> for records, wave_s in ((1e3, 0.5), (5e3, 0.5), (2e3, 1.0), (8e3, 0.25), (3e3, 0.25)):
    ...     known = known.with_batch(records, wave_s, 0.4 + (0.2 + 1e-3 * records) * wave_s)
    >>> [round(part_s, 1) for part_s in known.parts_s()]
    [0.4, 0.2]
    """

    count: float = 0.0
    whole: float = 0.0
    shared: float = 0.0
    cost_s: float = 0.0
    whole_whole: float = 0.0
    shared_shared: float = 0.0
    whole_shared: float = 0.0
    whole_cost_s: float = 0.0
    shared_cost_s: float = 0.0

    def with_batch(self, records: float, wave_s: float, took_s: float) -> Overhead:
        weight = max(1.0 / (self.count + 1.0), 1.0 / BATCHES)
        whole = 1.0 / (records * wave_s) - self.whole
        shared = 1.0 / records - self.shared
        cost_s = took_s / (records * wave_s) - self.cost_s

        def moment(known: float, one: float, other: float) -> float:
            return (1.0 - weight) * (known + weight * one * other)

        return Overhead(
            min(self.count + 1.0, BATCHES),
            self.whole + weight * whole,
            self.shared + weight * shared,
            self.cost_s + weight * cost_s,
            moment(self.whole_whole, whole, whole),
            moment(self.shared_shared, shared, shared),
            moment(self.whole_shared, whole, shared),
            moment(self.whole_cost_s, whole, cost_s),
            moment(self.shared_cost_s, shared, cost_s),
        )

    def is_typical(self, records: float) -> bool:
        """Whether all batches before were about as large as this one."""
        narrow = self.shared_shared < (0.5 * self.shared) ** 2
        return narrow and 0.25 < records * self.shared < 4.0

    def rescaled_to(self, records: float, wave_s: float, took_s: float) -> Overhead:
        """That of a job all of whose work has become slower or faster, by what one batch took."""
        whole_s, shared_s = self.parts_s()
        whole = whole_s * (1.0 / (records * wave_s) - self.whole)
        expected_s = self.cost_s + whole + shared_s * (1.0 / records - self.shared)
        factor = took_s / (records * wave_s) / max(expected_s, 1e-12)
        scaled = ("cost_s", "whole_cost_s", "shared_cost_s")
        return replace(self, **{name: factor * getattr(self, name) for name in scaled})

    def seconds(self, wave_s: float) -> float:
        """How long a batch without records takes."""
        whole_s, shared_s = self.parts_s()
        return whole_s + shared_s * wave_s

    def parts_s(self) -> tuple[float, float]:
        """The part that is not shared, and the core-seconds of the one that is."""
        if self.count < FEWEST:
            return 0.0, 0.0
        whole_whole = self.whole_whole + DOUBT * self.whole**2
        shared_shared = self.shared_shared + DOUBT * self.shared**2
        scale = whole_whole * shared_shared - self.whole_shared**2
        whole_s = shared_shared * self.whole_cost_s - self.whole_shared * self.shared_cost_s
        shared_s = whole_whole * self.shared_cost_s - self.whole_shared * self.whole_cost_s
        if whole_s >= 0.0 and shared_s >= 0.0:
            return whole_s / scale, shared_s / scale
        # Neither can be negative: the one that explains more is taken alone.
        whole_s, shared_s = self.whole_cost_s / whole_whole, self.shared_cost_s / shared_shared
        if whole_s * self.whole_cost_s > shared_s * self.shared_cost_s:
            return max(0.0, whole_s), 0.0
        return 0.0, max(0.0, shared_s)
