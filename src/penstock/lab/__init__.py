"""Experiments: scenarios, scores, tournaments, tuning, published studies, live comparisons.

Everything that compares policies stands here. Nothing here prints or parses a command line.
"""
