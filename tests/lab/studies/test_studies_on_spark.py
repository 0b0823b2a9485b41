"""Studies as Spark jobs: the same numbers to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import ConfigError
from penstock.lab.experiments.on_spark import items_on_spark
from penstock.lab.studies.russo2021 import RULES, RussoCell, Setting, run, study
from penstock.lab.studies.skeleton import Bench
from penstock.settings.policy_spec import read_policy_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_runs_of_a_study_are_tasks_with_the_same_results(spark: SparkSession) -> None:
    runner = items_on_spark(spark)
    cells = [RussoCell(rule, 1, Setting(0.5, 1.4)) for rule in RULES]
    counted: list[int] = []
    assert runner(run, cells, counted.append) == [run(cell) for cell in cells]
    assert counted == [1, 2, 3]
    assert study(runs=1).reproduce(Bench(runner=runner)) == study(runs=1).reproduce(Bench(1))
    # A function of the package: executors cannot import one of this file.
    with pytest.raises(ConfigError, match="unknown policy 'no_such_rule'"):
        runner(read_policy_spec, ["no_such_rule"], counted.append)
