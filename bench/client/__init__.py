"""The Python SDK, as a program uses it."""
