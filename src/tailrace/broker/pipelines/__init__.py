"""What Spark publishes: pipelines and writers, whose batches take effect exactly once, with marks for their progress."""
