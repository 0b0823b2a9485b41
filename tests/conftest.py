"""Hypothesis without a wall clock in disguise: no deadline, same examples every time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("penstock", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("penstock")
