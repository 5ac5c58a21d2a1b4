"""Encodes and decodes Kafka's formats. No I/O, no asyncio. Imports only `model`."""
