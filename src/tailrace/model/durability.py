"""When a commit is answered."""

from typing import Literal

Durability = Literal["fsync", "relaxed"]
"""`fsync`: when it is durable. `relaxed`: when it is written; it is synced soon after, and a power cut may lose it."""
