"""What is remembered of those who write, so that what they send again is stored once: Kafka producers and publishers."""
