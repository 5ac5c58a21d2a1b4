"""What is fuzzed. A target makes an input of its own and tries it; what comes of it may only be an answer or a refusal.

Anything else that is raised is a find, and so is a try that takes too long.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from socket import create_server
from struct import pack_into
from typing import NamedTuple

from crc32c import crc32c

from tailrace.kafka.dispatch import PendingResponse
from tailrace.kafka.listener import KafkaListener
from tailrace.model.errors import TailraceError, invariant
from tailrace.model.limits import Limits
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, check_batch
from tailrace.wire.compression import Compression, compress, decompress
from tailrace.wire.control import decode_marker
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.cluster import API_VERSIONS_API as API_VERSIONS
from tailrace.wire.messages.cluster import ApiVersionsRequest
from tailrace.wire.record_timestamps import first_record_at
from tailrace.wire.records import decode_batch, encode_batch
from tests.fuzz.mutation import mutated
from tests.fuzz.seeds import TOPIC, Seeds
from tests.support.kafka import CLIENT, Asker, answer_of, frame, read_response, running_asker, sized

LIMITS = Limits(
    fetch_wait_ms=1,
    partitions=1_000,
    topics=50,
    groups=50,
    request_seconds=5,
    request_bytes=1 << 20,
    new_connections_per_second=1_000_000,
)
MAX_ITEMS = 10_000
DECOMPRESSED_BYTES = 100_000
PATIENCE_SECONDS = 0.02
"""A request that waits for others, such as the join of a group, is left alone after this."""
_RESTART_EVERY = 2_000
"""Tries after which there is a new broker, so that its limits are not all used up."""


class Try(NamedTuple):
    """One input, and what to do with it."""

    data: bytes
    act: Callable[[bytes], Awaitable[None]]


Target = Callable[[Random, Seeds], AsyncGenerator[Try, None]]


async def message_target(random: Random, seeds: Seeds) -> AsyncGenerator[Try, None]:
    """Requests and responses of every version: what can be read can be written, and says the same again."""
    codec = MessageCodec()

    while True:
        api, version = seeds.version()
        shape = random.choice((api.request, api.response))
        flexible = api.is_flexible(version)
        whole = bytearray()
        codec.write(seeds.message(shape, version), version, flexible, whole)

        async def read(data: bytes, shape=shape, version=version, flexible=flexible) -> None:  # type: ignore[no-untyped-def]
            message = codec.read(shape, version, flexible, MessageSource(data, max_items=MAX_ITEMS))
            again = bytearray()
            codec.write(message, version, flexible, again)
            invariant(
                codec.read(shape, version, flexible, MessageSource(bytes(again))) == message, "a message reads back differently"
            )

        yield Try(bytes(mutated(random, bytes(whole), seeds.frames)), read)


async def batch_target(random: Random, seeds: Seeds) -> AsyncGenerator[Try, None]:
    """Record batches and the records in them, with checksums that fit, so that the decoder behind them is reached."""

    async def read(data: bytes) -> None:
        batch = bytearray(data)
        if len(batch) >= HEADER_BYTES:
            pack_into(">i", batch, 8, len(batch) - 12)
            pack_into(">I", batch, 17, crc32c(batch[CHECKED_FROM:]))
        header = check_batch(batch)
        limits = Limits(decompressed_batch_bytes=DECOMPRESSED_BYTES, batch_records=10_000)
        if header.is_control:
            decode_marker(batch)
            return
        with suppress(TailraceError):
            first_record_at(batch, header.base_timestamp + 1, limits, first=min(2, header.records - 1))
            decode_batch(batch, limits, first=1, most=2)
        check_batch(encode_batch(decode_batch(batch, limits)))

    while True:
        yield Try(bytes(mutated(random, bytes(seeds.batch()), seeds.frames)), read)


async def codec_target(random: Random, seeds: Seeds) -> AsyncGenerator[Try, None]:
    """Compressed bytes: what comes out is never larger than it may be."""
    while True:
        kind = random.choice(list(Compression)[1:])
        plain = random.choice((b"abc" * random.randint(0, 9_000), random.randbytes(random.randint(0, 2_000))))

        async def read(data: bytes, kind: Compression = kind) -> None:
            invariant(len(decompress(kind, data, DECOMPRESSED_BYTES)) <= DECOMPRESSED_BYTES, f"{kind.name} passes its bound")

        yield Try(bytes(mutated(random, bytes(compress(kind, plain)), seeds.frames)), read)


async def request_target(random: Random, seeds: Seeds) -> AsyncGenerator[Try, None]:
    """Whole requests to the handlers of a running broker: no request finds a fault in them."""
    while True:
        async with running_asker(limits=LIMITS) as asker:
            await asker.broker.topics.create(TOPIC, 2)

            async def ask(data: bytes, asker: Asker = asker) -> None:
                await _ask(asker, data)

            for _ in range(_RESTART_EVERY):
                whole = random.choice((seeds.request(), random.choice(seeds.frames)))
                yield Try(whole if random.random() < 0.2 else bytes(mutated(random, bytes(whole), seeds.frames)), ask)


async def connection_target(random: Random, seeds: Seeds) -> AsyncGenerator[Try, None]:
    """Anything at all to a socket, in pieces: others are served while it comes and after it."""
    while True:
        async with _listening() as listening:
            for _ in range(_RESTART_EVERY // 4):
                parts = []
                for _ in range(random.randint(1, 5)):
                    whole = random.choice((seeds.request(), random.choice(seeds.frames), random.randbytes(40)))
                    if random.random() < 0.6:
                        whole = bytes(mutated(random, bytes(whole), seeds.frames))
                    parts.append(sized(whole) if random.random() < 0.8 else whole)
                yield Try(b"".join(parts), listening.trouble)


TARGETS: dict[str, Target] = {
    "messages": message_target,
    "batches": batch_target,
    "codecs": codec_target,
    "requests": request_target,
    "connections": connection_target,
}


async def _ask(asker: Asker, data: bytes) -> None:
    reply = asker.dispatcher.dispatch(bytearray(data), CLIENT)
    if isinstance(reply, PendingResponse):
        await answer_of(reply, PATIENCE_SECONDS)
    invariant(asker.traffic.handler_faults == 0, "a handler has a fault")


class _Listening(NamedTuple):
    asker: Asker
    address: tuple[str, int]

    async def trouble(self, data: bytes) -> None:
        """Send it in two pieces and go away, then see whether a good client is answered."""
        _, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data[: len(data) // 2])
            await asyncio.sleep(0)
            writer.write(data[len(data) // 2 :])
            await self._be_served()
        finally:
            writer.close()
        invariant(self.asker.traffic.handler_faults == 0, "a handler has a fault")

    async def _be_served(self) -> None:
        request = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(sized(frame(API_VERSIONS, 3, request)))
            size = int.from_bytes(await reader.readexactly(4))
            _, response = read_response(API_VERSIONS, 3, await reader.readexactly(size))
            invariant(response.error_code == 0, "a good client is refused")
        finally:
            writer.close()


@asynccontextmanager
async def _listening() -> AsyncIterator[_Listening]:
    async with running_asker(limits=LIMITS) as asker:
        await asker.broker.topics.create(TOPIC, 2)
        with create_server(("127.0.0.1", 0)) as bound:
            listener = KafkaListener(asker.dispatcher, bound, asker.traffic, LIMITS, stop_seconds=1.0)
            await listener.start()
            try:
                yield _Listening(asker, bound.getsockname())
            finally:
                await listener.stop()
