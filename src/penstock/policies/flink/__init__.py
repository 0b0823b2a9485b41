"""The arithmetic of the autoscaler in Apache Flink's Kubernetes operator.

Rules as of apache/flink-kubernetes-operator 6e9caeb (July 2026, 1.16-SNAPSHOT). From raw samples
to a decision: `capacity`, `evaluation`, `history`, `vertex`. `metrics_window` and `outlook` turn
Penstock's snapshots into samples and plans into words.

A vertex is a chain of operators that runs as one task; its parallelism is how many of them run
at once. ``None`` is "unknown", infinite is "idle, so without limit".
"""
