"""Forwards to `expressions`, until its users import from there."""

from penstock.simulation.workloads.expressions import notes as notes
