"""Real streaming jobs and the events they read: Nexmark, WordCount, and two published workloads.

The facts of each benchmark (`nexmark`, `ysb`, `traffic`) are pure functions. `nexmark_events` and
`wordcount` draw whole streams from them, `timeline` says when each event is due, and `producer`
sends them to Kafka on time. The pipelines are functions from DataFrame to DataFrame; `run` starts
one on a cluster.
"""
