"""Everything that Penstock uses of Spark beyond its public interface, in one place.

The calls run in the Java process of the driver, through py4j. What can be had as one JSON text is
fetched so (Jackson on their side, msgspec on ours): one round trip costs about a millisecond, one
per field would cost twenty. `probe` tells for each capability whether this Spark has it; known to
work are 4.0 to 4.3.

A call that fails raises one of `JVM_ERRORS`; the sensor and the actuator make of it what it means
to them.
"""

from __future__ import annotations

from penstock.spark.internals.capabilities import Capabilities, Capability, probe
from penstock.spark.internals.driver import Driver, Json, Mode, SourceFacts
from penstock.spark.internals.java import JVM_ERRORS, first_line

__all__ = [
    "JVM_ERRORS",
    "Capabilities",
    "Capability",
    "Driver",
    "Json",
    "Mode",
    "SourceFacts",
    "first_line",
    "probe",
]
