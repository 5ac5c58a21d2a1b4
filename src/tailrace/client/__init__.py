"""The Python SDK, sync and async. Knows no server room."""
