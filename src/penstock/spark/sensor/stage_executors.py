"""What each executor held and spilled in single stages: the heap in use, and bytes on disk.

An executor reports its heap with each heartbeat (every 10 s), and Spark keeps the highest report of
each stage that ran at that moment. Garbage is part of it. After a collection it is not, so the
smallest of several reports is close to what is in use.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from penstock.spark.internals import Driver, Json

WINDOW_S = 60.0  #: The smallest report of this time counts.


def has_something(stage: Json) -> bool:
    """Whether a stage was reported in a heartbeat, or spilled; most were not, and did not."""
    return bool(_heap(stage) or stage.get("diskBytesSpilled"))


def _heap(summary: Json) -> int:
    """The highest report; stages and executors have it under names of their own."""
    peaks = summary.get("peakExecutorMetrics") or summary.get("peakMemoryMetrics") or {}
    return int(peaks.get("JVMHeapMemory", 0))


class HeapSamples:
    """The heap of each executor in the last reports, garbage included.

    >>> heap = HeapSamples()
    >>> for at_s, size in ((0.0, 900), (10.0, 400), (20.0, 700)):
    ...     heap.add("1", at_s, size)
    >>> heap.in_use("1", 20.0), heap.in_use("1", 75.0), heap.in_use("2", 75.0)
    (400, 700, None)

    An executor that reports no more keeps its last report.

    >>> heap.in_use("1", 500.0)
    700
    """

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def add(self, executor: str, at_s: float, size: int) -> None:
        self._samples[executor].append((at_s, size))

    def keep(self, executors: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(executors)
        for gone in self._samples.keys() - kept:
            del self._samples[gone]

    def in_use(self, executor: str, now_s: float) -> int | None:
        """The smallest report of the last minute, or the last one; ``None`` without any."""
        if executor not in self._samples:
            return None
        samples = self._samples[executor]
        recent = [each for each in samples if now_s - each[0] <= WINDOW_S] or samples[-1:]
        self._samples[executor] = recent
        return min(size for _, size in recent)


class StageExecutorWatch:
    """Reads executors' summaries of the stages that have something to say."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._seen: dict[tuple[int, int], Mapping[str, tuple[int, int]]] = {}
        self.heap = HeapSamples()
        self.spilled_bytes: dict[str, int] = defaultdict(int)

    def read(self, stages: Iterable[tuple[int, int]], now_s: float) -> None:
        """Take what is new of these stages and attempts; a running one is read again later."""
        before, self._seen = self._seen, {}
        for key in stages:
            known = before.get(key, {})
            found = {
                name: (_heap(each), each["diskBytesSpilled"])
                for name, each in self._driver.stage_executors(*key).items()
            }
            self._seen[key] = found
            for name, (peak, spilled) in found.items():
                known_peak, known_spilled = known.get(name, (0, 0))
                if peak > known_peak:
                    self.heap.add(name, now_s, peak)
                self.spilled_bytes[name] += max(0, spilled - known_spilled)
