"""``penstock run --class``: a streaming job in Java, compiled here, scaled or refused."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.core.journal import read_header, read_steps
from penstock.testbed.java import find_java

pytestmark = pytest.mark.slow

#: Runs until it has one executor; exits with its second argument, if there is one.
ORDERS = """
package example;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

public class Orders {
    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("orders").getOrCreate();
        StreamingQuery query = spark.readStream().format("rate").load()
            .writeStream().format("noop").trigger(Trigger.ProcessingTime("1 second")).start();
        int wanted = Integer.parseInt(arguments[0]);
        long end = System.currentTimeMillis() + 120_000;
        int executors = -1;
        while (System.currentTimeMillis() < end) {
            executors = spark.sparkContext().getExecutorMemoryStatus().size() - 1;
            if (query.recentProgress().length >= 4 && executors == wanted) break;
            query.awaitTermination(500);
        }
        query.stop();
        System.out.println("executors " + executors);
        if (arguments.length > 1) System.exit(Integer.parseInt(arguments[1]));
        spark.stop();
    }
}
"""
CONF = """
spark.master local-cluster[2,1,1024]
spark.executor.memory 512m
spark.ui.enabled false
spark.decommission.enabled true
spark.penstock.slo 20s
spark.penstock.every 1s
"""


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jar")
    (folder / "Orders.java").write_text(ORDERS)
    jars = Path(site.getsitepackages()[0], "pyspark", "jars", "*")
    javac = find_java().home / "bin" / "javac"
    if not javac.exists():
        pytest.skip("there is no javac")
    argv = [str(javac), "-cp", str(jars), "-d", str(folder), str(folder / "Orders.java")]
    subprocess.run(argv, check=True)
    with zipfile.ZipFile(folder / "orders.jar", "w") as archive:
        archive.write(folder / "example" / "Orders.class", "example/Orders.class")
    return folder / "orders.jar"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "spark-defaults.conf").write_text(CONF)
    return subprocess.run(
        [sys.executable, "-m", "penstock", "run", *arguments],
        env={**os.environ, "SPARK_CONF_DIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_a_jar_is_scaled_and_its_arguments_and_exit_code_are_its_own(
    jar: Path, tmp_path: Path
) -> None:
    options = ["--policy", "static:1", "--journal", "live.jsonl", "--class", "example.Orders"]
    result = run(tmp_path, *options, str(jar), "1", "7")
    assert "executors 1" in result.stdout, result.stderr[-3000:]
    assert "2 -> 1 executor: a fixed fleet of 1 executor" in result.stderr
    assert result.returncode == 7
    assert re.search(r"penstock: \d+ decisions?, 1 rescale", result.stderr)
    header = read_header(tmp_path / "live.jsonl")
    assert (header.run["policy"], header.goal["slo_s"]) == ("static:1", 20.0)
    assert any(
        step.snapshot and step.snapshot.batches for step in read_steps(tmp_path / "live.jsonl")
    )


def test_a_class_that_is_not_in_the_jar_is_one_sentence(jar: Path, tmp_path: Path) -> None:
    result = run(tmp_path, "--class", "example.Order", str(jar), "1")
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.endswith("has no class example.Order with a main method: correct --class")
    assert "Traceback" not in result.stderr
