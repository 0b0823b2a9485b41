"""Scalers compared on real Spark under the same load."""
