"""Shadows: topics that are kept equal in this server and in a Kafka."""
