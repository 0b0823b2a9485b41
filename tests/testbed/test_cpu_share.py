"""Shares of a core: where groups are made, what is refused, and processes that are held to one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.testbed import cpu_share
from penstock.testbed.cpu_share import (
    PREFIX,
    ExecutorShares,
    check_share,
    controllers,
    family,
    find_controller,
    used_cpu_s,
)
from penstock.testbed.processes import wait_until

# A child burns from the start, as a Python worker may; the parent starts another one when told to.
BURNING = """
import os, sys
if os.fork():
    sys.stdin.readline()
    os.fork()
while True:
    pass
"""


def no_groups() -> str:
    """Why groups cannot be made here; empty if they can."""
    try:
        find_controller()
    except ConfigError as error:
        return str(error)
    return ""


WHY_NOT = no_groups()
needs_cgroups = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "groups can be made")


@pytest.mark.parametrize(
    ("share", "executors", "cores", "sentence"),
    [
        (0.0, 8, 2, "the share of a core must be between 0.05 and 1, not 0"),
        (1.5, 1, 8, "the share of a core must be between 0.05 and 1, not 1.5"),
        (float("nan"), 1, 8, "the share of a core must be between 0.05 and 1, not nan"),
        (0.21, 8, 2, "8 executors with 0.21 of a core each need 1.68 cores"),
        (0.5, 2, 1, "2 executors with 0.5 of a core each need 1 cores, and this machine has 0.6"),
    ],
)
def test_a_share_that_cannot_be_had_is_refused(
    share: float, executors: int, cores: int, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        check_share(share, executors, cores)
    assert str(refusal.value).startswith(sentence)


def test_what_is_left_over_by_the_other_parts_can_be_given_away_completely() -> None:
    check_share(0.2, executors=8, cores=2)
    check_share(0.2, executors=3, cores=1)  # 3 x 0.2 is a little more than 0.6 in floats
    check_share(0.95, executors=8, cores=8)


@pytest.mark.parametrize(
    ("mounts", "memberships", "places"),
    [
        pytest.param(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
            "0::/user.slice/shell.scope",
            [
                ("/sys/fs/cgroup/user.slice/shell.scope", 2),
                ("/sys/fs/cgroup/user.slice", 2),
                ("/sys/fs/cgroup", 2),
            ],
            id="version 2",
        ),
        pytest.param(
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            "4:memory:/one\n1:cpu:/\n0::/",
            [("/sys/fs/cgroup/cpu", 1), ("/sys/fs/cgroup/unified", 2)],
            id="both versions",
        ),
        pytest.param(
            "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro shared:1 - cgroup cgroup rw,cpu",
            "1:cpu:/docker/abc",
            [("/sys/fs/cgroup/cpu", 1)],
            id="a container sees its own group as the top",
        ),
        pytest.param("23 1 8:1 / / rw - ext4 /dev/sda1 rw", "0::/", [], id="no cgroups"),
    ],
)
def test_groups_are_made_below_the_own_group_or_one_around_it(
    mounts: str, memberships: str, places: list[tuple[str, int]]
) -> None:
    found = [(str(each.place), each.version) for each in controllers(mounts, memberships)]
    assert found == places


def test_without_a_place_for_groups_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_share, "controllers", lambda *_: iter(()))
    with pytest.raises(ConfigError, match="cannot get a share of a core here: there is no cpu"):
        find_controller()


# -- Real groups -----------------------------------------------------------------------------------


def own_groups() -> list[Path]:
    return list(find_controller().place.glob(f"{PREFIX}{os.getpid()}-*"))


@contextmanager
def burning() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", BURNING], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@needs_cgroups
def test_groups_of_a_run_that_was_killed_are_removed_by_the_next() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    controller = find_controller()
    stale = controller.place / f"{PREFIX}{ended.pid}-77"
    other = controller.place / f"{PREFIX}{os.getppid()}-77"  # of a run that lives
    controller.make(stale, 0.2)
    controller.make(other, 0.2)
    try:
        with ExecutorShares(0.2):
            assert (stale.exists(), other.exists()) == (False, True)
    finally:
        other.rmdir()


@pytest.mark.slow
@needs_cgroups
def test_processes_use_their_share_together_with_those_that_they_start_later() -> None:
    with ExecutorShares(0.2, start_cpu_s=0.5) as shares, burning() as process:
        pid = process.pid
        wait_until(lambda: len(family(pid)) == 2, 30.0, "no child")
        shares.follow(lambda: [pid])
        assert pid not in shares.groups  # not before it has started
        wait_until(lambda: pid in shares.groups, 30.0, "it got no share")
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: len(family(pid)) == 3, 30.0, "no later child")
        inside = (shares.groups[pid] / "cgroup.procs").read_text().split()
        assert set(map(int, inside)) == set(family(pid))
        clock = WallClock()
        began_s, used_s = clock.now(), used_cpu_s(pid)
        wait_until(lambda: used_cpu_s(pid) >= used_s + 1.0, 60.0, "it hardly runs")
        share = (used_cpu_s(pid) - used_s) / (clock.now() - began_s)
    assert share == pytest.approx(0.2, rel=0.2)
    assert not own_groups()
