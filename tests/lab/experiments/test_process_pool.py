"""Work in processes: its order, its failures, and workers that end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lab.experiments.process_pool import run_in_processes
from penstock.testbed import wait_until


def test_results_come_back_in_order_whatever_the_number_of_processes() -> None:
    done: list[int] = []
    assert run_in_processes(abs, [-1, -2, -3], 2, done.append) == [1, 2, 3]
    assert done[-1] == 3
    assert run_in_processes(abs, [], 2) == []


def test_work_that_fails_in_a_process_fails_here_too() -> None:
    with pytest.raises(ValueError, match="x"):
        run_in_processes(int, ["1", "x"], 2)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are counted in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_a_comparison_that_is_ended(how: signal.Signals) -> None:
    argv = [sys.executable, "-m", "penstock", "compare", "--policy", "hpa,ds2", "--duration"]
    argv += ["24h", "--seeds", "1..50", "--no-regret", "--processes", "2"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, stdout=quiet, stderr=quiet, start_new_session=True) as run:
        try:
            wait_until(lambda: len(_group(run.pid)) == 3, 60.0, "no two workers were started")
            os.kill(run.pid, how)
            run.wait(10.0)
            wait_until(lambda: not _group(run.pid), 10.0, "a worker was left behind")
        finally:
            if _group(run.pid):
                os.killpg(run.pid, signal.SIGKILL)


def _group(group: int) -> list[int]:
    """The processes of a process group that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended meanwhile
        if int(own_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found
