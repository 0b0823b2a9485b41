"""Real streaming jobs and the events they read: Nexmark and WordCount.

`nexmark_events` and `wordcount` draw streams of events, `timeline` says when each event is due, and
`producer` sends them to Kafka on time. Pipelines are functions from DataFrame to DataFrame;
`benchmark_jobs` starts one on a cluster.
"""
