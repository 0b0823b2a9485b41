"""The parent of all testbed processes, which ends them when its own parent is gone.

A program of its own, standard library only so that it is up in a few hundredths of a second. It
reads requests from its input, one JSON object per line, and answers each with one line:

    {"start": {"argv": [...], "log": "...", "environment": {...}}}   ->  {"pid": 4711}
    {"ask": 4711}                                                    ->  {"exit": null}
    {"stop": 4711}                                                   ->  {"exit": -9}
    {"finally": {"argv": [...]}}                                     ->  {}

It works however the parent ends: the kernel closes the input, and since a sibling may hold that
open, the keeper also looks whether its parent changed. If it is killed itself, the kernel kills
what it started (Linux). What is no process, such as a network bridge, is removed last ("finally").
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LOOK_FOR_PARENT_EVERY_S = 0.5
GIVE_UP_ON_A_GROUP_AFTER = 2000  # looks, 5 ms apart: SIGKILL needs far less

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None) if LINUX else None


def process_control(option: int, value: int) -> None:
    if LIBC is not None:
        LIBC.prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """The living children of a process, their children and so on; Linux only."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat") as file:  # or it ended meanwhile
                # "pid (name, which may hold anything) state parent ..."
                state, parent, *_ = file.read().rpartition(")")[2].split()
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(name))
    found = [root]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def kill_all(processes: list[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


class Keeper:
    """What was started, by process id, and how it ended."""

    def __init__(self) -> None:
        self.exits: dict[int, int | None] = {}
        self.last: list[list[str]] = []

    def start(self, argv: list[str], log: str, environment: dict[str, str]) -> int:
        with open(log, "ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: process_control(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        process.returncode = 0  # reaped here and not by the object, which may go now
        self.exits[process.pid] = None
        return process.pid

    def reap(self) -> None:
        """Take note of all that ended, orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.exits:
                self.exits[pid] = os.waitstatus_to_exitcode(status)

    def ask(self, pid: int) -> int | None:
        self.reap()
        return self.exits[pid]

    def stop(self, pid: int) -> int | None:
        """Kill the group and all that left it, and return when none of the group is left."""
        family = descendants(pid) if self.ask(pid) is None else []
        for _ in range(GIVE_UP_ON_A_GROUP_AFTER):
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            kill_all(family)
            self.reap()
            time.sleep(0.005)
        return self.ask(pid)

    def stop_all(self) -> None:
        for pid in self.exits:  # first all get the signal, then each is waited for
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self.exits:
            self.stop(pid)
        for _ in range(GIVE_UP_ON_A_GROUP_AFTER):
            if not (left := descendants(os.getpid())):
                break
            kill_all(left)
            self.reap()
            time.sleep(0.005)
        for argv in self.last:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(argv, timeout=10.0, capture_output=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if "start" in request:
                return {"pid": self.start(**request["start"])}
            if "ask" in request:
                return {"exit": self.ask(request["ask"])}
            if "finally" in request:
                self.last.append(request["finally"]["argv"])
                return {}
            return {"exit": self.stop(request["stop"])}
        except OSError as error:
            return {"error": f"{error.filename or ''}: {error.strerror}"}


def serve(keeper: Keeper, parent: int) -> None:
    """Answer until the input ends or the parent is another process."""
    waiting = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], LOOK_FOR_PARENT_EVERY_S)
        if not readable:
            keeper.reap()
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, waiting = (waiting + received).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(keeper.answer(json.loads(line))).encode() + b"\n")


def main(parent: int) -> None:
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit())
    keeper = Keeper()
    try:
        serve(keeper, parent)
    except BrokenPipeError:
        return  # the parent went while we answered
    finally:
        keeper.stop_all()


if __name__ == "__main__":
    main(int(sys.argv[1]))
