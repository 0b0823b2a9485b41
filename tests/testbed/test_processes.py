"""Programs end with us, whatever ends us; tried with programs that are cheap to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tools.run_tests import members as members_of_session

from penstock.core.errors import ConfigError
from penstock.testbed.processes import Process, Processes, wait_until

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads the process table in /proc")

# A program with a child of its own, in its process group, as a Spark worker has executors.
FAMILY = ["sh", "-c", "sleep 1000 & echo started; wait"]

PARENT = """
import os, sys, time
from pathlib import Path
from penstock.testbed.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    family = processes.start("family", ["sh", "-c", "sleep 1000 & echo started; wait"], os.environ)
    {also}
    print(family.pid, flush=True)
    time.sleep(1000)
"""


def start(processes: Processes, argv: list[str]) -> Process:
    process = processes.start("program", argv, os.environ)
    if argv is FAMILY:
        process.wait_ready(lambda: "started" in process.log.read_text(), timeout_s=10.0)
    return process


def members(group: int) -> int:
    return len(members_of_session(group))  # each program leads a session, too


def parent_of_a_family(directory: Path, also: str = "pass") -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(also=also), str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    group = int(parent.stdout.readline())
    wait_until(lambda: members(group) == 2, 10.0, "the family did not start")
    return parent, group


@linux_only
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_parent_that_is_signalled(
    tmp_path: Path, ending: signal.Signals
) -> None:
    parent, group = parent_of_a_family(tmp_path)
    parent.send_signal(ending)
    parent.communicate()
    wait_until(lambda: members(group) == 0, 10.0, "the family outlived its parent")


@linux_only
def test_nothing_outlives_a_killed_parent_that_left_a_forked_child(tmp_path: Path) -> None:
    """The fork keeps the keeper's input open, so its end alone would say nothing."""
    fork = (
        "pid = os.fork(); pid or (os.close(1), time.sleep(1000)); Path('fork').write_text(str(pid))"
    )
    fork = fork.replace("'fork'", repr(str(tmp_path / "fork")))
    parent, group = parent_of_a_family(tmp_path, also=fork)
    parent.kill()
    parent.communicate()
    try:
        wait_until(lambda: members(group) == 0, 10.0, "the family outlived its parent")
    finally:
        os.kill(int((tmp_path / "fork").read_text()), signal.SIGKILL)


@linux_only
def test_programs_die_with_a_killed_keeper_and_the_next_request_says_so(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = start(processes, ["sleep", "1000"])
        keeper = int(Path(f"/proc/{program.pid}/stat").read_text().split()[3])
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: members(program.pid) == 0, 10.0, "the program outlived the keeper")
        with pytest.raises(ConfigError, match="keeper of the testbed's processes was killed"):
            program.running()


@linux_only
def test_programs_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    started: list[Process] = []
    with Processes(tmp_path) as processes:
        thread = threading.Thread(target=lambda: started.append(start(processes, FAMILY)))
        thread.start()
        thread.join()
        assert started[0].running()
        assert members(started[0].pid) == 2
    assert members(started[0].pid) == 0


@linux_only
def test_stopping_one_program_takes_its_children_and_leaves_the_others(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        family, other = start(processes, FAMILY), start(processes, ["sleep", "1000"])
        family.stop()
        assert members(family.pid) == 0
        assert not family.running()
        assert other.running()


def runaway(processes: Processes, directory: Path) -> tuple[Process, int]:
    """A program whose child leaves its group and session, as a container does; and that child."""
    file = directory / "child"
    script = f"setsid sh -c 'echo $$ > {file}; exec sleep 1000' & sleep 1000"
    program = start(processes, ["sh", "-c", script])
    wait_until(lambda: file.exists() and file.read_text(), 10.0, "the child did not start")
    return program, int(file.read_text())


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@linux_only
def test_what_left_the_group_of_its_program_is_stopped_with_it(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program, child = runaway(processes, tmp_path)
        assert child not in members_of_session(program.pid)
        program.stop()
        wait_until(lambda: has_ended(child), 5.0, "the child lives on")


@linux_only
def test_orphans_that_left_their_group_end_with_the_testbed_and_last_commands_run(
    tmp_path: Path,
) -> None:
    with Processes(tmp_path) as processes:
        processes.at_the_end(["touch", str(tmp_path / "done")])
        processes.at_the_end(["no-such-program"])
        processes.at_the_end(["touch", str(tmp_path / "done too")])
        program, child = runaway(processes, tmp_path)
        os.kill(program.pid, signal.SIGKILL)
        wait_until(lambda: not program.running(), 5.0, "it lives on")
        assert not has_ended(child)
        assert not (tmp_path / "done").exists()
    assert has_ended(child)
    assert (tmp_path / "done").exists()
    assert (tmp_path / "done too").exists()


@linux_only
def test_a_paused_program_stands_still_and_is_stopped_all_the_same(tmp_path: Path) -> None:
    def state() -> str:
        return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]

    with Processes(tmp_path) as processes:
        program = start(processes, ["sleep", "1000"])
        program.pause()
        wait_until(lambda: state() == "T", 5.0, "it did not pause")
        program.resume()
        wait_until(lambda: state() == "S", 5.0, "it did not resume")
        program.pause()
    assert members(program.pid) == 0


def test_a_program_that_ends_while_it_starts_gives_its_reason(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        argv = ["sh", "-c", "echo 'java.net.BindException: Address already in use'; exit 1"]
        program = processes.start("broker", argv, os.environ)
        with pytest.raises(ConfigError) as caught:
            program.wait_ready(lambda: False, timeout_s=10.0)
    assert str(caught.value) == (
        "the broker ended while it started: java.net.BindException: Address already in use "
        f"(log: {tmp_path / 'broker.log'})"
    )


def test_a_program_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = start(processes, ["sleep", "1000"])
        with pytest.raises(ConfigError, match=r"did not answer within 0\.2 s: it wrote nothing"):
            program.wait_ready(lambda: False, timeout_s=0.2)


def test_a_program_that_fails_says_why_and_one_that_succeeds_says_nothing(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("good", ["true"], os.environ).wait_done(timeout_s=10.0)
        bad = processes.start("format", ["sh", "-c", "echo 'ERROR disk full'; false"], os.environ)
        with pytest.raises(ConfigError, match=r"the format failed: disk full \(log: "):
            bad.wait_done(timeout_s=10.0)


def test_a_program_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with (
        Processes(tmp_path) as processes,
        pytest.raises(ConfigError, match=r"cannot start .* no-such-program: No such file"),
    ):
        processes.start("x", ["no-such-program"], os.environ)


def test_a_closed_testbed_starts_nothing(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        pass
    with pytest.raises(ConfigError, match="the testbed is closed"):
        processes.start("x", ["true"], os.environ)


def start_until_interrupted(logs: Path, environment: dict[str, str], after_ms: int) -> None:
    with Processes(logs) as processes:
        # The keeper's own start takes longer than the time to the interrupt: wait for it.
        processes.start("program", ["sleep", "1000"], environment)
        signal.setitimer(signal.ITIMER_REAL, after_ms / 1000.0)
        while True:
            processes.start("program", ["sleep", "1000"], environment)


@linux_only
@pytest.mark.parametrize("after_ms", [1, 2, 3, 5, 8, 13])
def test_an_interrupt_in_the_middle_of_a_start_leaves_no_program(
    tmp_path: Path, after_ms: int
) -> None:
    marker = f"marker-{tmp_path.name}"
    usual = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_until_interrupted(tmp_path, {**os.environ, "MARKER": marker}, after_ms)
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert (tmp_path / "program.log").exists()
    alive = [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/environ")
             if marker in environ(file)]  # fmt: skip
    assert not alive


def environ(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # it has just ended
        return ""
