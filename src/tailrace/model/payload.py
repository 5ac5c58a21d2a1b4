"""A payload: a value that is too large for the log and is kept beside it, once, by the hash of its content."""

from hashlib import sha256
from typing import NamedTuple

DIGEST_BYTES = 32


class PayloadReference(NamedTuple):
    """Which content, and how large it is."""

    digest: bytes
    """SHA-256 of the content."""
    size: int


def reference_to(content: bytes) -> PayloadReference:
    return PayloadReference(sha256(content).digest(), len(content))
