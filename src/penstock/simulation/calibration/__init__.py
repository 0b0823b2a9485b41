"""Engines fitted to recorded runs."""
