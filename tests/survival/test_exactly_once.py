"""Every record counts once, whatever happens to the fleet and the broker meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.testbed import Testbed, wait_until
from tests.survival.scene import (
    PATIENCE_S,
    Dial,
    Feed,
    broker_away,
    come_to,
    commit,
    counting,
    new_topic,
    passes_s,
    processed,
    results,
    truth,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,  # the chaos of CI counts each record as well
    pytest.mark.timeout(900),
    # PySpark leaves the socket of each collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SIZES = (3, 2, 4, 1, 2, 1)


def test_each_record_counts_once_through_rescales_a_lost_executor_and_a_silent_broker(
    bed: Testbed, spark: SparkSession, tmp_path: Path
) -> None:
    topic, output = new_topic(bed), new_topic(bed)
    dial = Dial(1)
    with (
        counting(bed, spark, topic, output, tmp_path / "state", cost_s=0.002) as query,
        Feed(bed, topic, rate_rps=200.0) as feed,
    ):
        commit(query, 2)
        with penstock.attach(spark, dial, min=1, max=4) as handle:
            for executors in SIZES:
                dial.executors = executors
                come_to(spark, executors)
                commit(query, 2)
                if executors == 4:
                    lost = bed.kill_executor()
                    wait_until(
                        lambda: handle.status().losses == 1, PATIENCE_S, "the loss was not noticed"
                    )
                    come_to(spark, 4)
                    assert lost.id not in {each.id for each in bed.executors()}
                if executors == 3:
                    before = handle.status()
                    with broker_away(bed):
                        passes_s(10.0)
                    commit(query, 2)
                    assert handle.status().rescales == before.rescales
            status = handle.status()
        records = feed.end()
        wait_until(lambda: processed(query) == records, PATIENCE_S, "records are left over")
    assert status.rescales == len(SIZES)
    assert (status.losses, status.error) == (1, "")
    assert records > 2000
    assert results(bed, output) == truth(records)
