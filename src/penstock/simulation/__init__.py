"""Simulated jobs: engines, workloads, faults, and calibration from a recording.

Random numbers come from a seeded generator that is passed in. Nothing here knows Spark.
"""

MAX_DURATION_S = 31 * 86400.0  #: A longer simulated run would take hours or gigabytes.
