"""Copies topics between Tailrace and an Apache Kafka, exactly once, and moves their users from one to the other."""
