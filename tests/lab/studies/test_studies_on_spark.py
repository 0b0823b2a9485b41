"""Studies as Spark jobs: the same numbers to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import ConfigError
from penstock.lab.experiments.on_spark import items_on_spark
from penstock.lab.studies.russo2021 import RULES, RussoCell, Setting, run, study
from penstock.lab.studies.skeleton import Bench

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
    bad = RussoCell("no such rule", 1, Setting(0.5, 1.4))
    with pytest.raises(ConfigError, match="unknown rule 'no such rule'"):
        runner(_refused, [bad], counted.append)


def _refused(cell: RussoCell) -> None:
    raise ConfigError(f"unknown rule '{cell.rule}'")
