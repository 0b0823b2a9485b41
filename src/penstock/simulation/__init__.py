"""A job that exists only on paper: two engines, workloads, and what can go wrong."""
