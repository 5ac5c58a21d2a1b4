"""Which topics a consumer has subscribed to, read from what it says when it joins.

The broker needs no more of it: assignors are the clients' own. Newer fields after the topics are left unread, so later versions
of the format work too.
"""

from struct import Struct, error

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """`None` if it is not a consumer's subscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        at = _HEAD.size
        if version < 0 or not 0 <= count <= (len(metadata) - at) // _LENGTH.size:
            return None
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
