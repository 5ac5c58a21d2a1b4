"""Kafka's messages, one module per API. Made by `tools/generate_messages.py`; not edited by hand."""
