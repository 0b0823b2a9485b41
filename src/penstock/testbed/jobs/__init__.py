"""Real streaming jobs and the events they read: Nexmark and WordCount.

`nexmark_events` and `wordcount` draw streams of events, `timeline` says when each event is due, and
`producer` sends them to Kafka on time. Pipelines go from DataFrame to DataFrame; ``jobs.toml`` says
what each job is, and `benchmark_jobs` has them by name.
"""
