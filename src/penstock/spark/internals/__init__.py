"""Everything that Penstock uses of Spark beyond its public interface, in one place.

The calls run in the Java process of the driver, through py4j. One round trip costs about a
millisecond, so values are fetched as one JSON text rather than field by field. `probe` says which
capabilities this Spark has; 4.0 to 4.3 are known to work. A call that fails raises one of
`JVM_ERRORS`.
"""

from __future__ import annotations

from penstock.spark.internals.capabilities import Capabilities, Capability, probe
from penstock.spark.internals.driver import Driver, Json, SourceFacts, Trigger
from penstock.spark.internals.java import JVM_ERRORS, first_line

__all__ = [
    "JVM_ERRORS",
    "Capabilities",
    "Capability",
    "Driver",
    "Json",
    "SourceFacts",
    "Trigger",
    "first_line",
    "probe",
]
