"""Penstock keeps a Spark Structured Streaming job at the right size while it runs.

::

    import penstock

    penstock.attach(spark, policy="ds2", min=2, max=8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.attach import attach as attach

__version__ = "0.1.0"
__all__ = ["__version__", "attach"]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: the lab runs without PySpark.
    if name == "attach":
        from penstock.spark.attach import attach

        return attach
    raise AttributeError(f"module 'penstock' has no attribute '{name}'")
