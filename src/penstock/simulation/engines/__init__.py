"""Simulated jobs: micro-batch (like Spark) and continuous (like Flink)."""
