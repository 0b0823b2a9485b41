"""Arithmetic that several policies share: dataflow rates, slots, symptoms, ARIMA, recovery times.

Pure functions and frozen values. What only one policy uses stands in that policy's folder.
"""
