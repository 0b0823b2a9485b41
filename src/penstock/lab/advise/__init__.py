"""What Penstock would save, from the event logs of jobs that never heard of it."""
