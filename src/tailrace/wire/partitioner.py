"""Chooses the partition of a record by its key as Kafka's own clients do: equal keys go to the same partition."""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_32_BITS = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit MurmurHash2, signed as in Java."""
    length = len(key)
    mixed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _32_BITS
        part = (part ^ part >> 24) * _MULTIPLIER & _32_BITS
        mixed = (mixed * _MULTIPLIER & _32_BITS) ^ part
    if length & 3:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _32_BITS
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _32_BITS
    mixed ^= mixed >> 15
    return mixed - (1 << 32) if mixed >> 31 else mixed


def partition_for_key(key: bytes, partitions: int) -> int:
    return 0 if partitions == 1 else (murmur2(key) & 0x7FFFFFFF) % partitions
