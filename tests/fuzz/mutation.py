"""Changes to bytes that decoders find hard: lengths that lie, cuts, repeats, pieces of something else."""

from collections.abc import Callable, Sequence
from random import Random

_LENGTHS = (0, 1, -1, -2, 127, 128, 255, 256, 32_767, -32_768, 65_535, 1 << 24, (1 << 31) - 1, -(1 << 31))
_LONGEST_PIECE = 64

Change = Callable[[Random, bytearray, Sequence[bytes]], None]


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytearray:
    """A copy with one to four changes. `others` lend their pieces."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        random.choice(_CHANGES)(random, changed, others)
    return changed


def _place(random: Random, data: bytearray) -> int:
    return random.randint(0, max(0, len(data) - 1))


def _flip(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[_place(random, data)] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[_place(random, data)] = random.randrange(256)


def _lie(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """A length or count of another size than what follows."""
    width = random.choice((1, 2, 4, 8))
    number = random.choice(_LENGTHS) % (1 << 8 * width)
    at = _place(random, data)
    data[at : at + width] = number.to_bytes(width)


def _stretch(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """A number of variable length that does not end where it should."""
    at = _place(random, data)
    data[at : at + 1] = b"\xff" * random.randint(1, 11) + bytes([random.randrange(128)])


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[_place(random, data) :]


def _remove(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    del data[at : at + random.randint(1, _LONGEST_PIECE)]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    data[at:at] = data[at : at + random.randint(1, _LONGEST_PIECE)] * random.randint(1, 3)


def _insert(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    data[at:at] = random.randbytes(random.randint(1, 16))


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    begin = random.randint(0, len(other))
    at = _place(random, data)
    data[at : at + random.randint(0, _LONGEST_PIECE)] = other[begin : begin + random.randint(1, _LONGEST_PIECE)]


_CHANGES: tuple[Change, ...] = (_flip, _overwrite, _lie, _lie, _stretch, _cut, _remove, _repeat, _insert, _splice)
