"""Loads over time: shapes, traces, and expressions of them."""
