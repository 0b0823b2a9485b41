"""Whatever learns from numbers: filters, estimates, queueing formulas. All pure."""
