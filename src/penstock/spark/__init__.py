"""Live Spark: what can be seen of a running Structured Streaming job, and how its fleet changes.

The only package that knows Spark; `internals` is the only part that goes behind its public
interface.
"""
