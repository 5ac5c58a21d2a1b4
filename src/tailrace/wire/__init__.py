"""Kafka bytes to values and back. No I/O, no asyncio. Imports only `model`."""
