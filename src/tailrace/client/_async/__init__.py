"""The client for programs that run on asyncio. `_sync` is generated from it (`tools/generate_sync.py`)."""
