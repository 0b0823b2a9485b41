"""Work spread over processes: the same function on many items, results in their order."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Told how many items are done, each time that it changes.
Progress = Callable[[int], None]


def spread(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int | None = None,
    progress: Progress | None = None,
    arrived: Callable[[int, Result], None] | None = None,
) -> list[Result]:
    """Do `work` on all items, at most `processes` at once (one per core without it).

    `arrived` is given each result as soon as it is there, with the place of its item.

    >>> spread(abs, [-3, 2], processes=1)
    [3, 2]
    """
    arrived = arrived or _ignored
    progress = progress or _ignored
    workers = max(1, min(processes or os.cpu_count() or 1, len(items)))
    if workers == 1:
        results = []
        for place, item in enumerate(items):
            results.append(work(item))
            arrived(place, results[-1])
            progress(len(results))
        return results
    # Forking costs milliseconds where it is to be had; spawned workers import everything anew.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method))
    try:
        with warnings.catch_warnings():
            # Python 3.12 and later warn of any other thread; those of NumPy wait for work.
            warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
            futures = [pool.submit(work, item) for item in items]
        places = {future: place for place, future in enumerate(futures)}
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                arrived(places[future], future.result())
            progress(len(futures) - len(waiting))
        return [future.result() for future in futures]
    except BaseException:
        # Whoever interrupts wants it to end now, not when the work that is under way is done.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ignored(*_: object) -> None:
    """Nobody listens."""
