"""Forwards to `continuous`, until its users import from there."""

from penstock.simulation.engines.continuous import ContinuousRun as ContinuousRun
