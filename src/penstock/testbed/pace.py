"""Work that takes time and no processor, so that one machine can stand for a cluster.

Eight executors on two cores are no faster than two, unless records wait instead of computing.
Measured on two cores, 4 ms per record: 222, 435, 792 and 1279 records/s on 1, 2, 4 and 8 executors;
give each task 200 records or more. A sleep in a Python function does worse (154, 290, 426, 496).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NANOSECONDS_PER_S = 1_000_000_000


def paced(frame: DataFrame, cost_s: float | Column) -> DataFrame:
    """The same records, each of which costs its executor some seconds of waiting.

    An expression of the engine, no Python on the way. The waiting is a filter that lets all pass:
    it is not deterministic, so the optimiser neither drops it nor moves it nor computes it once.
    It counts where it stands: before a shuffle it slows the stage that reads the source. A column
    as `cost_s` makes some records dearer.
    """
    from pyspark.sql import functions

    if not isinstance(cost_s, int | float):
        nanoseconds = (cost_s * NANOSECONDS_PER_S).cast("long")
    elif not 0 <= cost_s <= 60:
        raise ConfigError(f"the pace must be between 0 and 60 s per record, not {cost_s:g}")
    elif cost_s == 0:
        return frame
    else:
        nanoseconds = functions.lit(round(cost_s * NANOSECONDS_PER_S)).cast("long")
    # The method returns nothing, which the engine spells 'null'.
    waited = functions.reflect(
        functions.lit("java.util.concurrent.locks.LockSupport"),
        functions.lit("parkNanos"),
        nanoseconds,
    )
    return frame.where(waited == "null")
