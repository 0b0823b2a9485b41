"""The benchmark: scenarios, scores, and tournaments of policies."""
