"""``penstock advise`` on real Spark: good logs, bad ones, and those that Spark writes here."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock.core.journal import read_steps
from penstock.lab.advise.advice import Advice
from penstock.lab.advise.logs import lines
from penstock.lab.experiments import lab_module

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parent / "recorded"
CODECS = ("lz4", "snappy", "zstd", "plain")
#: A batch job whose log is compressed with a codec of Spark.
BATCH_JOB = """
import sys
from penstock.testbed.sessions import open_session
place, codec = sys.argv[1:]
settings = {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{place}",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": str(codec != "plain").lower(),
    "spark.eventLog.compression.codec": "zstd" if codec == "plain" else codec,
}
with open_session(f"batch-{codec}", "local[1]", settings) as spark:
    spark.range(100).repartition(3).count()
"""
#: The same logs through another file system of Hadoop.
FAR = """
import sys
import msgspec
from penstock.lab.advise.advice import Question
from penstock.lab.advise.pipeline import SESSION_SETTINGS, answers, find_logs
from penstock.testbed.sessions import open_session
mount = {"spark.hadoop.fs.viewfs.mounttable.default.link./logs": sys.argv[1]}
with open_session("far", "local[1]", SESSION_SETTINGS | mount) as spark:
    files = find_logs(spark, ["viewfs://default/logs/*"])
    assert all(file.path.startswith("viewfs:") for file in files)
    found = answers(spark, files, Question(("static:6",), most=8)).collect()
print(msgspec.json.encode([row for answer in found for row in answer.rows]).decode())
"""


#: A worker of Python is killed while it reads; two hundred short logs are judged all the same.
LOST = """
import os, signal, sys, threading
from pathlib import Path
from penstock.lab.advise.advice import Question
from penstock.lab.advise.pipeline import SESSION_SETTINGS, answers, find_logs, tasks_done
from penstock.testbed import wait_until
from penstock.testbed.keeper import descendants
from penstock.testbed.sessions import open_session
def workers():
    ours = {pid for pid in descendants(os.getpid()) if b"pyspark.daemon" in cmdline(pid)}
    return [pid for pid in ours if ours & set(descendants(pid)) == set()]
def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
def kill():
    wait_until(lambda: 0 < tasks_done(spark)[0] < 200, 120.0, "nothing is read")
    for pid in workers():
        os.kill(pid, signal.SIGKILL)
        print("killed", flush=True)
with open_session("lost", "local[1,4]", SESSION_SETTINGS) as spark:
    files = find_logs(spark, [sys.argv[1]])
    killer = threading.Thread(target=kill)
    killer.start()
    found = answers(spark, files, Question(("static:6",))).collect()
    killer.join()
    print("logs", len({row.log for answer in found for row in answer.rows}))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the settings of a session stay in its Java."""
    argv = [sys.executable, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded log, four that Spark writes now, one cut off, an empty and a foreign file."""
    place = tmp_path_factory.mktemp("logs")
    (recorded,) = RECORDED.glob("eventlog_v2_*")
    shutil.copytree(recorded, place / recorded.name)
    (file,) = recorded.glob("events_*")
    cut = place / "eventlog_v2_cut" / file.name
    cut.parent.mkdir()
    cut.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    (place / "empty").touch()
    (place / "notes.txt").write_text("no event log\n")
    for codec in CODECS:
        ended = python("-c", BATCH_JOB, str(place), codec)
        assert ended.returncode == 0, ended.stderr
    return place


@pytest.fixture(scope="module")
def advised(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one call leaves behind."""
    place = tmp_path_factory.mktemp("advised")
    (place / "j").mkdir()
    argv = ["advise", str(logs), "--master", "local[2]", "--max", "8", "--price", "0.5"]
    argv += ["--policy", "static:3", "--out", str(place / "rows"), "--journals", str(place / "j")]
    ended = python("-m", "penstock", *argv, "--html", str(place / "page.html"))
    assert ended.returncode == 1, ended.stderr  # some files could not be read
    (place / "stderr").write_text(ended.stderr)
    return place


def rows_of(place: Path) -> list[Advice]:
    table = lab_module("pyarrow.parquet", "a test").read_table(place / "rows")
    return [Advice(**row) for row in table.to_pylist()]


def test_every_log_is_in_the_result_and_what_saves_most_comes_first(advised: Path) -> None:
    rows = rows_of(advised)
    said = [row for row in rows if not row.cannot_say]
    assert rows[: len(said)] == said
    assert {row.policy for row in said} == {"penstock", "static:3"}
    saved = [row.saved_hours or 0.0 for row in said if row.policy == "penstock"]
    assert saved == sorted(saved, reverse=True)
    assert all(row.saved_money == pytest.approx(0.5 * (row.saved_hours or 0.0)) for row in said)


def test_logs_that_spark_wrote_with_each_codec_are_read(advised: Path) -> None:
    batch = {row.name: row for row in rows_of(advised) if row.name.startswith("batch-")}
    assert batch.keys() == {f"batch-{codec}" for codec in CODECS}
    assert {row.cannot_say for row in batch.values()} == {
        "it has no streaming query that committed a batch"
    }
    assert not any(row.problem for row in batch.values())


def test_what_cannot_be_read_is_named(advised: Path) -> None:
    problems = {Path(row.log).name: row.problem for row in rows_of(advised) if row.problem}
    assert problems.keys() == {"empty", "notes.txt", "eventlog_v2_cut"}
    assert problems["empty"].endswith("empty is empty")
    assert problems["notes.txt"].endswith("is no event log: it begins with b'no event l'")
    assert "Truncated compressed stream" in problems["eventlog_v2_cut"]
    named = (advised / "stderr").read_text()
    assert all(problem in named for problem in problems.values())


def test_the_page_links_to_charts_and_journals_serve_the_other_commands(
    advised: Path,
) -> None:
    said = [row for row in rows_of(advised) if row.policy == "penstock" and not row.problem]
    (row,) = said
    page = (advised / "page.html").read_text()
    assert row.application in page
    assert f'href="j/{row.application}.html"' in page
    assert (advised / "j" / f"{row.application}.html").stat().st_size > 50_000
    recorded = advised / "j" / f"{row.application}.jsonl"
    would = advised / "j" / f"{row.application}.penstock.jsonl"
    steps = list(read_steps(recorded))
    assert len(steps) > 40
    report = ["report", str(recorded), str(would), "--out", str(advised / "r.html")]
    calibrate, explain = ["calibrate", str(recorded)], ["explain", str(would)]
    replay = ["replay", str(recorded), "--policy", "ds2"]
    for argv, allowed in ((report, {0}), (calibrate, {0}), (explain, {0}), (replay, {0, 1})):
        assert python("-m", "penstock", *argv).returncode in allowed, argv


def test_logs_at_another_file_system_are_read_by_spark(logs: Path) -> None:
    ended = python("-c", FAR, logs.as_uri())
    assert ended.returncode == 0, ended.stderr
    rows = msgspec.json.decode(ended.stdout, type=list[Advice])
    assert len([row for row in rows if row.saved_hours is not None]) == 1
    bad = {Path(row.log).name for row in rows if row.problem}
    assert bad == {"empty", "notes.txt", "eventlog_v2_cut"}


@pytest.mark.long
def test_the_task_of_a_worker_that_is_lost_is_repeated(tmp_path: Path) -> None:
    (file,) = RECORDED.glob("eventlog_v2_*/events_*")
    with file.open("rb") as stream:
        short = b"\n".join(list(lines(stream))[:40]) + b"\n"
    for number in range(200):
        (tmp_path / f"app-{number}").write_bytes(short)
    ended = python("-c", LOST, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "killed" in ended.stdout
    assert "logs 200" in ended.stdout


def test_a_terminal_shows_a_bar_that_counts_the_tasks_of_spark(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "penstock", "advise", str(RECORDED), "--master", "local[1]"]
    argv += ["--policy", "static:3", "--html", str(tmp_path / "a.html")]
    screen, terminal = pty.openpty()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # how Linux says that the other end is closed
            while some := os.read(screen, 65_536):
                shown += some
        os.close(screen)
    assert process.returncode == 0, shown
    # One task reads the file, one lists it, one judges it.
    assert re.search(rb"advise.*[12]/3", shown), shown


def test_a_place_without_logs_is_refused(tmp_path: Path) -> None:
    html = str(tmp_path / "a.html")
    (tmp_path / "nothing").mkdir()
    for name, sentence in (
        ("nowhere", f"there is no {tmp_path}/nowhere"),
        ("nothing", "there is no event log at"),
    ):
        place = str(tmp_path / name)
        ended = python("-m", "penstock", "advise", place, "--master", "local[1]", "--html", html)
        assert ended.returncode == 2
        assert sentence in ended.stderr
