"""Tests here use a real cluster and a session on it."""

from tests.cluster import bed, spark

__all__ = ["bed", "spark"]
