"""Penstock keeps a Spark Structured Streaming job at the right size while it runs."""

from __future__ import annotations

__version__ = "0.1.0"
