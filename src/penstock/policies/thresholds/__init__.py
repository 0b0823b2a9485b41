"""Thresholds on filtered metrics: the policy and its filters."""
