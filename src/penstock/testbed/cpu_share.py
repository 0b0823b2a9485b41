"""Executors that compute with a share of a core each, so that eight of them fit on two cores.

Each executor with its Python workers is put into a control group (cgroup, version 1 or 2) whose
quota the kernel enforces, once it has started: that takes 10 s of processor time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from threading import Event, Thread

from penstock.core.errors import ConfigError
from penstock.testbed.keeper import descendants
from penstock.testbed.processes import wait_until

log = logging.getLogger(__name__)

PREFIX = "penstock-executor-"
PERIOD_US = 100_000
LEAST_SHARE = 0.05  #: With less, an executor cannot even answer its driver in time.
OTHER_CORES = 0.4  #: For the driver, the broker, the producer and Penstock itself.
START_CPU_S = 10.0  #: What an executor uses freely at first.
LOOK_EVERY_S = 0.5
END_TIMEOUT_S = 10.0  #: Until the last process of an executor that was killed is gone.


def check_share(share: float, executors: int, cores: int) -> None:
    """Refuse a share that makes no sense, or that this number of executors cannot all have.

    >>> check_share(0.2, executors=8, cores=2)
    >>> check_share(0.3, executors=8, cores=2)
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: 8 executors with 0.3 of a core each need 2.4 cores, and this
    machine has 1.6 for them: give each at most 0.2
    """
    if not LEAST_SHARE <= share <= 1.0:
        bounds = f"{LEAST_SHARE:g} and 1"
        raise ConfigError(f"the share of a core must be between {bounds}, not {share:g}")
    free = cores - OTHER_CORES
    if executors * share > free + 1e-9:
        most = floor(100 * free / executors + 1e-9) / 100
        raise ConfigError(
            f"{executors} executors with {share:g} of a core each need {executors * share:g} "
            f"cores, and this machine has {free:g} for them: give each at most {most:g}"
        )


def quota_files(share: float, version: int) -> dict[str, str]:
    """What is written where to give a group its share.

    >>> quota_files(0.2, version=2)
    {'cpu.max': '20000 100000'}
    >>> quota_files(0.2, version=1)
    {'cpu.cfs_period_us': '100000', 'cpu.cfs_quota_us': '20000'}
    """
    quota_us = round(share * PERIOD_US)
    if version == 2:
        return {"cpu.max": f"{quota_us} {PERIOD_US}"}
    return {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{quota_us}"}


@dataclass(frozen=True, slots=True)
class CpuController:
    """A control group below which groups with a quota can be made."""

    place: Path
    version: int

    def check(self) -> None:
        """Make a group and remove it again; an `OSError` says why that is not possible."""
        if self.version == 2:
            # Groups below get a quota only if this one passes the controller on to them.
            passed_on = self.place / "cgroup.subtree_control"
            if "cpu" not in passed_on.read_text().split():
                passed_on.write_text("+cpu")
        group = self.group("check")
        self.make(group, LEAST_SHARE)
        group.rmdir()
        if not os.access(self.place / "cgroup.procs", os.W_OK):
            raise PermissionError(None, "processes cannot be moved")

    def group(self, name: str) -> Path:
        """Where a group of this process is, or would be."""
        return self.place / f"{PREFIX}{os.getpid()}-{name}"

    def make(self, group: Path, share: float) -> None:
        group.mkdir(exist_ok=True)
        for file, text in quota_files(share, self.version).items():
            (group / file).write_text(text)


def removed(group: Path) -> bool:
    """Whether the group is gone; it cannot go before its last process."""
    try:
        group.rmdir()
    except OSError:
        return not group.exists()
    return True


def controllers(mounts: str, memberships: str) -> Iterator[CpuController]:
    """Where a process may make groups: below its own group first, then below those around it.

    The texts are those of `/proc/self/mountinfo` and `/proc/self/cgroup`.

    >>> one = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
    >>> [str(found.place) for found in controllers(one, "3:cpu,cpuacct:/b")]
    ['/sys/fs/cgroup/cpu/b', '/sys/fs/cgroup/cpu']
    """
    own: dict[str, str] = {}
    for line in memberships.splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)  # version 2 has no names
    for line in mounts.splitlines():
        mounted, _, kind = line.partition(" - ")
        root, point = mounted.split()[3:5]
        system, _, options = kind.split()[:3]
        if system == "cgroup2":
            version, path = 2, own.get("", root)
        elif system == "cgroup" and "cpu" in options.split(","):
            version, path = 1, own.get("cpu", root)
        else:
            continue
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        place = Path(point, inside)
        for each in (place, *place.parents):
            if each.is_relative_to(point):
                yield CpuController(each, version)


def find_controller() -> CpuController:
    """The first that works here, or a `ConfigError` that says why none does."""
    problem = "there is no cpu controller"
    with suppress(FileNotFoundError):  # a system without control groups
        this = Path("/proc/self")
        found = controllers((this / "mountinfo").read_text(), (this / "cgroup").read_text())
        for controller in found:
            place = controller.place
            known = place / "cgroup.controllers"
            if controller.version == 2 and "cpu" not in known.read_text().split():
                continue
            try:
                controller.check()
            except OSError as error:
                problem = f"{place}: {error.strerror}"
            else:
                return controller
    raise ConfigError(f"executors cannot get a share of a core here: {problem}")


def family(pid: int) -> list[int]:
    """A process and all that it started, itself first; none if it has ended."""
    return [pid, *descendants(pid)] if Path(f"/proc/{pid}").exists() else []


def used_cpu_s(pid: int) -> float:
    """The processor time that a process and all that it started have used."""
    ticks = 0
    for each in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            # "pid (name, which may hold anything) state parent ..."
            after_name = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ExecutorShares:
    """Holds executors to a share of a core; leave the block only after they have ended."""

    share: float
    start_cpu_s: float = START_CPU_S
    controller: CpuController = field(default_factory=find_controller)
    groups: dict[int, Path] = field(default_factory=dict)
    _stopping: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def __enter__(self) -> ExecutorShares:
        """Remove the groups of runs that were killed."""
        for group in self.controller.place.glob(f"{PREFIX}*"):
            owner = group.name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                removed(group)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(TimeoutError):  # then the next run removes them
            groups = self.groups.values()
            wait_until(lambda: all(map(removed, groups)), END_TIMEOUT_S, "", every_s=0.05)

    def follow(self, executors: Callable[[], Iterable[int]]) -> None:
        """From now on give each executor its share, soon after its start."""

        def look() -> None:
            while not self._stopping.wait(LOOK_EVERY_S):
                self.apply(set(executors()))

        self._thread = Thread(target=look, name="penstock-cpu-share", daemon=True)
        self._thread.start()

    def apply(self, alive: Set[int]) -> None:
        """Give those their share that have started, and remove the groups of those that ended."""
        for pid in self.groups.keys() - alive:
            if removed(self.groups[pid]):
                del self.groups[pid]
        for pid in alive - self.groups.keys():
            if used_cpu_s(pid) >= self.start_cpu_s:
                self.confine(pid)

    def confine(self, pid: int) -> None:
        """Put a process and all that it started into a group with the share."""
        group = self.groups[pid] = self.controller.group(str(pid))
        try:
            self.controller.make(group, self.share)
            moved: set[int] = set()
            # Those that are started from now on come into the group by themselves; until all of
            # their parents are in it, some may still start outside.
            while outside := [each for each in family(pid) if each not in moved]:
                for each in outside:
                    with suppress(ProcessLookupError):
                        (group / "cgroup.procs").write_text(str(each))
                moved |= set(outside)
        except OSError as error:
            log.warning("executor process %d has no share of a core: %s", pid, error)
