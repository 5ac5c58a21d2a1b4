"""Handlers of Kafka's APIs, a module for each family. `kafka/dispatch.py` defines what a handler is."""
