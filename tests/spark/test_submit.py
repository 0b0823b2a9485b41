"""``spark-submit`` of a script that does not know Penstock, configured through Spark alone."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.core.journal import read_header, read_steps
from penstock.testbed.java import find_java

ROOT = Path(__file__).parent.parent.parent
UV = [sys.executable, "-m", "uv"]
#: Runs some batches, until there are as many executors as its argument says; prints what it saw.
JOB = """
import json
import sys
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
query = rate.writeStream.format("noop").trigger(processingTime="1 second").start()
give_up_s = time.monotonic() + 120
while time.monotonic() < give_up_s:
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    if len(query.recentProgress) >= 4 and executors == int(sys.argv[1]):
        break
    query.awaitTermination(1)
query.stop()
finders = spark.range(1).rdd.map(lambda _: [type(each).__name__ for each in sys.meta_path])
worker = finders.first()
loaded = [name for name in sys.modules if name.startswith("penstock")]
print(json.dumps({"executors": executors, "worker": worker, "loaded": loaded}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; it borrows what Penstock depends on."""
    folder = tmp_path_factory.mktemp("environment")
    build = [*UV, "build", "--quiet", "--no-build-isolation", "--wheel", "--out-dir", str(folder)]
    subprocess.run([*build, "--python", sys.executable, str(ROOT)], check=True)
    return environment(folder / "plain", str(next(folder.glob("*.whl"))))


def environment(folder: Path, *install: str) -> Path:
    subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(site.getsitepackages()[0])
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--python", str(python)]
    subprocess.run([*UV, "pip", "install", *options, *install], check=True)
    return python


def submit(
    python: Path,
    folder: Path,
    *conf: str,
    master: str = "local[1]",
    executors: int = 0,
    environment: dict[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """What the job saw, and what was logged: spark-submit shows all of it on standard output."""
    (folder / "job.py").write_text(JOB)
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": str(python),
        "SPARK_CONF_DIR": str(folder),
        **(environment or {}),
    }
    pyspark = Path(site.getsitepackages()[0], "pyspark")
    options = [word for each in conf for word in ("--conf", each)]
    argv = [str(pyspark / "bin" / "spark-submit"), "--master", master, *options]
    argv += [str(folder / "job.py"), str(executors)]
    done = subprocess.run(
        argv, env=variables, cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(said)
    return found, done.stdout


@pytest.mark.slow
def test_an_unchanged_script_is_scaled_as_its_spark_configuration_says(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.penstock.enabled true\n"
        "spark.penstock.policy static:1\n"  # --conf wins over it
        "spark.penstock.every 1s\n"
        "spark.penstock.journal live.jsonl\n"
        "spark.ui.enabled false\n"
        "spark.executor.memory 512m\n"
        "spark.dynamicAllocation.enabled true\n"
        "spark.dynamicAllocation.shuffleTracking.enabled true\n"
        "spark.dynamicAllocation.initialExecutors 1\n"
        "spark.dynamicAllocation.maxExecutors 1\n"
    )
    (tmp_path / "penstock.toml").write_text("[goal]\nslo_s = 20.0\n[limits]\nmax_executors = 7\n")
    own = ("spark.penstock.policy=static:2", "spark.penstock.maxExecutors=3")
    master = "local-cluster[2,1,1024]"
    found, log = submit(python, tmp_path, *own, master=master, executors=2)
    assert found["executors"] == 2
    lines = [line for line in log.splitlines() if line.startswith("penstock: ")]
    assert any("1 -> 2 executors: a fixed fleet of 2 executors" in line for line in lines)
    assert "WriterFinder" not in found["worker"]
    header = read_header(tmp_path / "live.jsonl")
    assert header.run["policy"] == "static:executors=2"
    assert (header.limits["max_executors"], header.goal["slo_s"]) == (3, 20.0)
    steps = read_steps(tmp_path / "live.jsonl")
    assert any(step.receipt is not None and step.receipt.accepted for step in steps)


@pytest.mark.slow
def test_mode_recommend_works_where_nothing_can_be_scaled(python: Path, tmp_path: Path) -> None:
    keys = ("enabled=true", "mode=recommend", "policy=static:3", "every=1s", "journal=live.jsonl")
    found, log = submit(python, tmp_path, *(f"spark.penstock.{key}" for key in keys))
    assert "mode act is not possible: local[1] runs everything in one process" in log
    assert "1 -> 3 executors: a fixed fleet of 3 executors (recommended only" in log
    assert found["executors"] == 0
    seen = [step.snapshot for step in read_steps(tmp_path / "live.jsonl") if step.snapshot]
    assert {(each.fleet.target, each.fleet.active) for each in seen} == {(1, 1)}
    assert any(each.batches for each in seen)


@pytest.mark.slow
def test_wrong_settings_are_a_warning_and_the_job_runs(python: Path, tmp_path: Path) -> None:
    conf = ("spark.penstock.enabled=true", "spark.penstock.maxExecutor=8")
    found, log = submit(python, tmp_path, *conf)
    (warning,) = [line for line in log.splitlines() if "not scaled" in line]
    assert "unknown key 'spark.penstock.maxExecutor'" in warning
    assert "did you mean 'spark.penstock.maxExecutors'?" in warning
    assert "Traceback" not in log
    assert found["executors"] == 0


@pytest.mark.slow
def test_nothing_is_loaded_unless_the_configuration_asks_for_it(
    python: Path, tmp_path: Path
) -> None:
    found, log = submit(python, tmp_path, "spark.penstock.maxExecutors=8")
    assert found["loaded"] == ["penstock_hook"]
    off = {"PENSTOCK_HOOK": "off"}
    found, log = submit(python, tmp_path, "spark.penstock.enabled=true", environment=off)
    assert found["loaded"] == ["penstock_hook"]
    assert "penstock:" not in log


@pytest.mark.slow
def test_an_editable_install_has_the_hook_too(tmp_path: Path) -> None:
    python = environment(tmp_path / "editable", "--editable", str(ROOT))
    code = "import sys; print([type(each).__name__ for each in sys.meta_path][0])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "WriterFinder\n"
