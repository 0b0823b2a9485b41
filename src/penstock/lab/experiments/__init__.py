"""One run, its score, and many runs: scenario, oracle, tournament, sweep, tuning."""
