"""The same function on many items in processes of this machine, results in their order."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from threading import Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
Output = TypeVar("Output")

#: Called with the number of items that are done, each time that it changes.
Progress = Callable[[int], None]
#: Calls a function on all items, somewhere, and gives the results in their order.
ItemRunner = Callable[[Callable[[Any], Any], Sequence[Any], Progress], list[Any]]


def run_in_processes(
    work: Callable[[Item], Output],
    items: Sequence[Item],
    processes: int | None = None,
    progress: Progress = lambda _: None,
    on_result: Callable[[int, Output], None] = lambda *_: None,
) -> list[Output]:
    """Call `work` on all items, at most `processes` at once (one per core without it).

    `on_result` gets each result as soon as it is there, with the position of its item. Workers end
    with this process, however it ends.

    >>> run_in_processes(abs, [-3, 2], processes=1)
    [3, 2]
    """
    workers = max(1, min(processes or os.cpu_count() or 1, len(items)))
    if workers == 1:
        results = []
        for position, item in enumerate(items):
            results.append(work(item))
            on_result(position, results[-1])
            progress(len(results))
        return results
    # A fork takes milliseconds where there is one; a spawned worker imports everything again.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        with warnings.catch_warnings():
            # Python 3.12 and later warn of any other thread; those of NumPy wait for work.
            warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
            futures = [pool.submit(work, item) for item in items]
        return _results(futures, on_result, progress)
    except BaseException:
        # An interrupt ends the work that is under way, too.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _results(
    futures: Sequence[Future[Output]], on_result: Callable[[int, Output], None], progress: Progress
) -> list[Output]:
    """Wait for all, and pass each on as soon as it is there."""
    positions = {future: position for position, future in enumerate(futures)}
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            on_result(positions[future], future.result())
        progress(len(futures) - len(waiting))
    return [future.result() for future in futures]


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, which ends its workers, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
