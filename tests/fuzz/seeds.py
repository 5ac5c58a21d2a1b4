"""What mutation begins with: captured requests, a request of every API and version, batches of every codec."""

from random import Random
from typing import Any
from uuid import UUID

from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.message import Api, FieldKind, KafkaMessage, MessageField, describe
from tailrace.wire.records import encode_batch
from tests.fuzz.corpus import captured
from tests.support.kafka import frame
from tools.generate_messages import generated_apis

TOPIC = "orders"
"""The one that requests often name, so that they find something."""
_NAMES = (TOPIC, TOPIC, "group", "", "a.b", "ü" * 70, "x" * 300)
_INTEGERS = (0, 0, 1, 2, 5, -1, -2, -3, 100, 1_000, 60_000)
_BITS = {FieldKind.INT8: 8, FieldKind.INT16: 16, FieldKind.INT32: 32, FieldKind.INT64: 64}
_CODECS = tuple(Compression)


class Seeds:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._versions = [(api, version) for api in generated_apis() for version in range(api.lowest, api.highest + 1)]
        self.frames = [each.frame for each in captured()] or [self.request()]

    def version(self) -> tuple[Api, int]:
        return self._random.choice(self._versions)

    def request(self) -> bytes:
        """A whole request with values that make sense here and there."""
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
