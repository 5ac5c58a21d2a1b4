"""Real Kafka clients against a real server: one table of scenarios, one adapter a client, one grid of results."""
