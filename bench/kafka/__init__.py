"""Tailrace beside Apache Kafka: the same clients do the same work at both, in turn."""
