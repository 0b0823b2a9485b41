"""What is measured of a running job: progress, stages, executors, Kafka offsets."""
