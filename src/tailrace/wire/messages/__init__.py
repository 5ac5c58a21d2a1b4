"""Kafka's messages, a module for each family of APIs. Written by `tools/generate_messages.py`; do not edit."""
