"""The replica arithmetic of Kubernetes' horizontal pod autoscaler and of KEDA's Kafka scaler.

Rules as of Kubernetes 1.38 and KEDA 2.20: `pods` (which pods count), `metrics` (what one metric
asks for), `stabilization` and `behavior` (how far and how fast it may go), `pacing` (both, with a
small memory, for the policies `hpa`, `keda_lag` and `varga`).
"""
