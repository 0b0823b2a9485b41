"""Work spread over processes: the same function on many items, results in their order."""

from __future__ import annotations

import multiprocessing
import os
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
) -> list[Result]:
    """Do `work` on all items, at most `processes` at once (one per core without it).

    >>> spread(abs, [-3, 2], processes=1)
    [3, 2]
    """
    workers = max(1, min(processes or os.cpu_count() or 1, len(items)))
    if workers == 1:
        results = []
        for item in items:
            results.append(work(item))
            if progress is not None:
                progress(len(results))
        return results
    # Forking costs milliseconds where it is to be had; spawned workers import everything anew.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method))
    try:
        futures = [pool.submit(work, item) for item in items]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            if progress is not None:
                progress(len(futures) - len(waiting))
        return [future.result() for future in futures]
    except BaseException:
        # Whoever interrupts wants it to end now, not when the work that is under way is done.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
