"""Simulated jobs: engines, workloads, faults, and calibration from a recording.

Random numbers come from a seeded generator that is passed in. Nothing here knows Spark.
"""
