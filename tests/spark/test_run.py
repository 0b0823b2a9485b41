"""``penstock run`` as a user meets it: a script of its own, scaled or refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.journal import read_header, read_steps
from penstock.testbed import Testbed

JOB = """
import sys
from pyspark import SparkConf
from pyspark.sql import SparkSession

settings = dict(line.split("=", 1) for line in open(sys.argv[1]).read().splitlines())
spark = SparkSession.builder.config(conf=SparkConf().setAll(settings.items())).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rate = spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 4)
frame = rate.load()
"""
SCALED = """
query = frame.writeStream.format("noop").trigger(processingTime="1 second").start()
while len(query.recentProgress) < 8 or spark.sparkContext._jsc.sc().getExecutorIds().size() < 2:
    query.awaitTermination(1)
query.stop()
spark.stop()
print("done", sys.argv[2:])
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    with Testbed(slots=3, kafka=False, run_directory=tmp_path_factory.mktemp("bed")) as running:
        yield running


def run(
    tmp_path: Path, script: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`penstock run` in a process of its own."""
    path = tmp_path / "job.py"
    path.write_text(script)
    place = arguments.index("JOB") if "JOB" in arguments else 0
    before, after = arguments[:place], arguments[place + 1 :]
    argv = [sys.executable, "-m", "penstock", "run", *before, str(path), *after]
    return subprocess.run(
        argv, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=240
    )


def on(
    bed: Testbed, tmp_path: Path, script: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """A script on the cluster; it reads the cluster's settings from a file."""
    lines = [f"{key}={value}" for key, value in bed.spark_conf(initial_executors=1).items()]
    (tmp_path / "conf").write_text("\n".join(lines))
    arguments = [*options, "JOB", str(tmp_path / "conf"), "--policy", "mine"]
    return run(tmp_path, JOB + script, *arguments, environment=bed.driver_environment)


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The last line on standard error, which is Penstock's."""
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_an_unmodified_script_is_scaled_and_its_arguments_are_its_own(
    bed: Testbed, tmp_path: Path
) -> None:
    journal = tmp_path / "live.jsonl"
    (tmp_path / "penstock.toml").write_text(
        '[policy]\nname = "static"\nexecutors = 2\n[limits]\nmax_executors = 3\n'
        "[live]\nevery_s = 1.0\n"
    )
    result = on(bed, tmp_path, SCALED, "--journal", str(journal))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done ['--policy', 'mine']\n"
    assert "1 -> 2 executors: a fixed fleet of 2 executors" in result.stderr
    assert re.fullmatch(r"penstock: \d+ decisions, 1 rescale", sentence(result))
    assert "Traceback" not in result.stderr
    assert read_header(journal).run["policy"] == "static:executors=2"
    assert max(step.snapshot.fleet.active for step in read_steps(journal) if step.snapshot) == 2


@pytest.mark.slow
def test_a_query_that_ends_by_itself_is_not_scaled_and_runs_to_its_end(
    bed: Testbed, tmp_path: Path
) -> None:
    script = (
        'frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()'
        '\nprint("done")'
    )
    result = on(bed, tmp_path, script)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert sentence(result) == (
        "penstock: not scaled: a query with trigger availableNow ends by itself: use "
        "trigger(processingTime=...), or run it without Penstock; "
        "the script runs on at its own size"
    )


@pytest.mark.slow
def test_an_application_that_may_not_have_the_fleet_runs_on_at_its_own_size(
    bed: Testbed, tmp_path: Path
) -> None:
    (tmp_path / "penstock.toml").write_text("[limits]\nmin_executors = 5\n")
    script = (
        'query = frame.writeStream.format("noop").trigger(processingTime="1 second").start()\n'
        "while len(query.recentProgress) < 2:\n    query.awaitTermination(1)\n"
        'query.stop()\nprint("done")'
    )
    result = on(bed, tmp_path, script)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    warnings = [line for line in result.stderr.splitlines() if "not scaled" in line]
    assert warnings == [
        "penstock: not scaled: min is 5 executors and spark.cores.max=3 gives 3: set "
        "spark.cores.max=5 or lower min; the script runs on at its own size"
    ]


@pytest.mark.slow
def test_a_job_in_local_mode_runs_on_with_a_warning(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.master("local[1]").getOrCreate()\n'
        'query = spark.readStream.format("rate").load().writeStream.format("noop").start()\n'
        "while len(query.recentProgress) < 2:\n    query.awaitTermination(1)\n"
        'query.stop()\nprint("done")',
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    warnings = [line for line in result.stderr.splitlines() if "not scaled" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("penstock: not scaled: local[1] runs everything in one process")
    assert warnings[0].endswith("; the script runs on at its own size")


def test_a_script_without_a_query_is_one_sentence(tmp_path: Path) -> None:
    result = run(tmp_path, "print('nothing to stream')")
    assert result.returncode == 2
    assert result.stdout == "nothing to stream\n"
    assert sentence(result).endswith(
        "job.py ended without starting a streaming query: Penstock scales what "
        "writeStream...start() begins"
    )


def test_a_script_that_fails_or_exits_does_so_as_usual(tmp_path: Path) -> None:
    failed = run(tmp_path, "raise ValueError('mine')")
    assert failed.returncode == 1
    assert sentence(failed) == "ValueError: mine"
    assert run(tmp_path, "import sys; sys.exit(7)").returncode == 7


def test_a_machine_without_java_says_what_to_install(tmp_path: Path) -> None:
    """The places that systems put Java in are looked at too, so they are made to be empty."""
    script = tmp_path / "no_java.py"
    script.write_text(
        "import sys\nfrom penstock.testbed import java\njava.INSTALLED_UNDER = ()\n"
        "from penstock.cli.app import main\nmain(['run', sys.argv[1]])\n"
    )
    (tmp_path / "job.py").write_text("raise SystemExit(9)")
    argv = [sys.executable, str(script), str(tmp_path / "job.py")]
    bare = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    result = subprocess.run(argv, capture_output=True, text=True, env={**bare, "PATH": ""})
    assert result.returncode == 2
    assert result.stderr.startswith("penstock: Spark needs Java 17")
    assert "apt-get install openjdk-17-jre-headless" in result.stderr
