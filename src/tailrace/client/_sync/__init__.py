"""The client for programs without asyncio, generated from `_async` (`tools/generate_sync.py`)."""
