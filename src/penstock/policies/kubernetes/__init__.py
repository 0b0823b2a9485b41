"""The replica arithmetic of Kubernetes' horizontal pod autoscaler and of KEDA's Kafka scaler.

Rules as of Kubernetes 1.38 and KEDA 2.20: `metrics` (which pods count, what one metric asks for)
and `pacing` (how far and how fast it may go) for the policies `hpa`, `keda_lag` and `varga`.
"""
