"""Spark clusters that a test can start on this machine."""
