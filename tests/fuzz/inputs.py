"""Inputs for fuzzing: captured requests, requests of every API and version, batches of every codec, and mutations of bytes.

Mutations are changes that decoders find hard: wrong lengths, cuts, repeats, parts of something else.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.message import Api, FieldKind, KafkaMessage, MessageField, describe
from tailrace.wire.records import encode_batch
from tests.support.kafka import frame
from tools.generate_messages import generated_apis
from tools.record_frames import FRAMES

TOPIC = "orders"
"""The topic that requests often name, so that they find one that exists."""
_NAMES = (TOPIC, TOPIC, "group", "", "a.b", "ü" * 70, "x" * 300)
_INTEGERS = (0, 0, 1, 2, 5, -1, -2, -3, 100, 1_000, 60_000)
_BITS = {FieldKind.INT8: 8, FieldKind.INT16: 16, FieldKind.INT32: 32, FieldKind.INT64: 64}
_CODECS = tuple(Compression)


class FuzzSeeds:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._versions = [(api, version) for api in generated_apis() for version in range(api.lowest, api.highest + 1)]
        self.frames = [each.frame for each in captured_frames()] or [self.request()]

    def version(self) -> tuple[Api, int]:
        return self._random.choice(self._versions)

    def request(self) -> bytes:
        """Return a whole request with partly sensible values."""
        api, version = self.version()
        return bytes(frame(api, version, self.message(api.request, version)))

    def message(self, shape: type[KafkaMessage], version: int) -> KafkaMessage:
        fields = [field for field in describe(shape) if field.since <= version <= field.until]
        return shape(**{field.name: self._value(field, version) for field in fields})

    def batch(self) -> bytearray:
        random = self._random
        records = [
            Record(random.choice((None, b"", b"key")), random.randbytes(random.randint(0, 40)), self._headers(), self._time())
            for _ in range(random.randint(1, 8))
        ]
        return encode_batch(records, codec=random.choice(_CODECS))

    def _headers(self) -> list[tuple[str, bytes | None]]:
        return [("name", self._random.choice((None, b"", b"value"))) for _ in range(self._random.randint(0, 2))]

    def _time(self) -> int:
        return 1_700_000_000_000 + self._random.randint(0, 100_000)

    def _value(self, field: MessageField, version: int) -> Any:
        if version >= field.nullable_since and self._random.random() < 0.2:
            return None
        if field.is_array:
            return tuple(self._one(field, version) for _ in range(self._random.randint(0, 2)))
        return self._one(field, version)

    def _one(self, field: MessageField, version: int) -> Any:
        random = self._random
        kind = field.kind
        if not isinstance(kind, FieldKind):
            return self.message(kind, version)
        if kind is FieldKind.BOOLEAN:
            return random.random() < 0.5
        if kind is FieldKind.FLOAT64:
            return random.choice((0.0, -1.5, 1e308, float("inf"), random.random()))
        if kind is FieldKind.UUID:
            return UUID(int=random.choice((0, 1, random.getrandbits(128))))
        if kind is FieldKind.STRING:
            return random.choice(_NAMES)
        if kind is FieldKind.BYTES:
            return random.randbytes(random.randint(0, 40))
        if kind is FieldKind.RECORDS:
            return bytes(self.batch())
        bits = _BITS[kind]
        number = random.choice((*_INTEGERS, random.getrandbits(bits) - (1 << bits - 1)))
        return number if -(1 << bits - 1) <= number < 1 << bits - 1 else -1


class CapturedFrame(NamedTuple):
    """A request as a real client sent it, captured by `tools/record_frames.py`."""

    client: str
    name: str
    """API and version, and for Produce the compression."""
    frame: bytes

    def __str__(self) -> str:
        return f"{self.client}/{self.name}"


def captured_frames(folder: Path = FRAMES) -> list[CapturedFrame]:
    return [
        CapturedFrame(path.parent.name, path.stem, bytes.fromhex(path.read_text())) for path in sorted(folder.rglob("*.hex"))
    ]


_LENGTHS = (0, 1, -1, -2, 127, 128, 255, 256, 32_767, -32_768, 65_535, 1 << 24, (1 << 31) - 1, -(1 << 31))
_LONGEST_PART = 64

Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytearray:
    """Return a copy with one to four mutations. Parts of `others` are spliced in."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        random.choice(_MUTATIONS)(random, changed, others)
    return changed


def _random_place(random: Random, data: bytearray) -> int:
    return random.randint(0, max(0, len(data) - 1))


def _flip(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[_random_place(random, data)] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[_random_place(random, data)] = random.randrange(256)


def _lie(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """Write a length or count other than that of what follows."""
    width = random.choice((1, 2, 4, 8))
    number = random.choice(_LENGTHS) % (1 << 8 * width)
    at = _random_place(random, data)
    data[at : at + width] = number.to_bytes(width)


def _stretch(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """Write a varint that is longer than the one it replaces."""
    at = _random_place(random, data)
    data[at : at + 1] = b"\xff" * random.randint(1, 11) + bytes([random.randrange(128)])


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[_random_place(random, data) :]


def _remove(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _random_place(random, data)
    del data[at : at + random.randint(1, _LONGEST_PART)]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _random_place(random, data)
    data[at:at] = data[at : at + random.randint(1, _LONGEST_PART)] * random.randint(1, 3)


def _insert(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _random_place(random, data)
    data[at:at] = random.randbytes(random.randint(1, 16))


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    begin = random.randint(0, len(other))
    at = _random_place(random, data)
    data[at : at + random.randint(0, _LONGEST_PART)] = other[begin : begin + random.randint(1, _LONGEST_PART)]


_MUTATIONS: tuple[Mutation, ...] = (_flip, _overwrite, _lie, _lie, _stretch, _cut, _remove, _repeat, _insert, _splice)
