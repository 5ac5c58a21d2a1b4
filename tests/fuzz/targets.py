"""What is fuzzed. A target yields inputs and what to do with each; the result may only be an answer or a `TailraceError`.

An input that raises anything else, or that takes too long, is harmful.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
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
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest
from tailrace.wire.otlp import read_metrics
from tailrace.wire.record_timestamps import first_record_at
from tailrace.wire.records import decode_batch, encode_batch
from tests.fuzz.inputs import TOPIC, FuzzSeeds, mutated
from tests.support.kafka import CLIENT, Asker, answer_of, frame, read_response, running_asker, sized
from tests.support.otlp import metric, metrics_data

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
ANSWER_SECONDS = 0.02
"""How long a request that waits for others, such as the join of a group, is waited for."""
_RESTART_EVERY = 2_000
"""The number of inputs after which a new broker is started, so that its limits are not used up."""


class FuzzInput(NamedTuple):
    """One input and what to do with it."""

    data: bytes
    act: Callable[[bytes], Awaitable[None]]


Target = Callable[[Random, FuzzSeeds], AsyncGenerator[FuzzInput, None]]


async def message_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Read requests and responses of every version. What can be read can be written and read back as the same message."""
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

        yield FuzzInput(bytes(mutated(random, bytes(whole), seeds.frames)), read)


async def batch_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Decode record batches, with valid checksums, so that the records in them are decoded too."""

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
        yield FuzzInput(bytes(mutated(random, bytes(seeds.batch()), seeds.frames)), read)


async def codec_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Decompress bytes. The result is never larger than its limit."""
    while True:
        kind = random.choice(list(Compression)[1:])
        plain = random.choice((b"abc" * random.randint(0, 9_000), random.randbytes(random.randint(0, 2_000))))

        async def read(data: bytes, kind: Compression = kind) -> None:
            invariant(len(decompress(kind, data, DECOMPRESSED_BYTES)) <= DECOMPRESSED_BYTES, f"{kind.name} exceeds its limit")

        yield FuzzInput(bytes(mutated(random, bytes(compress(kind, plain)), seeds.frames)), read)


async def metrics_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Read metrics that clients push."""

    async def read(data: bytes) -> None:
        read_metrics(data)

    while True:
        metrics = [metric(f"m{number}", number, 0.5, is_sum=number % 2 == 0) for number in range(random.randint(0, 20))]
        yield FuzzInput(bytes(mutated(random, metrics_data(metrics), seeds.frames)), read)


async def request_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Send whole requests to the handlers of a running broker. None may raise an unexpected error."""
    while True:
        async with running_asker(limits=LIMITS) as asker:
            await asker.broker.topics.create(TOPIC, 2)

            async def ask(data: bytes, asker: Asker = asker) -> None:
                await _ask(asker, data)

            for _ in range(_RESTART_EVERY):
                whole = random.choice((seeds.request(), random.choice(seeds.frames)))
                yield FuzzInput(whole if random.random() < 0.2 else bytes(mutated(random, bytes(whole), seeds.frames)), ask)


async def connection_target(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Send any bytes to a socket, in parts. Other clients are served meanwhile and afterwards."""
    while True:
        async with _listening() as listening:
            for _ in range(_RESTART_EVERY // 4):
                parts = []
                for _ in range(random.randint(1, 5)):
                    whole = random.choice((seeds.request(), random.choice(seeds.frames), random.randbytes(40)))
                    if random.random() < 0.6:
                        whole = bytes(mutated(random, bytes(whole), seeds.frames))
                    parts.append(sized(whole) if random.random() < 0.8 else whole)
                yield FuzzInput(b"".join(parts), listening.disturb)


TARGETS: dict[str, Target] = {
    "messages": message_target,
    "batches": batch_target,
    "codecs": codec_target,
    "metrics": metrics_target,
    "requests": request_target,
    "connections": connection_target,
}


async def _ask(asker: Asker, data: bytes) -> None:
    reply = asker.dispatcher.dispatch(bytearray(data), CLIENT)
    if isinstance(reply, PendingResponse):
        await answer_of(reply, ANSWER_SECONDS)
    invariant(asker.traffic.handler_faults == 0, "a handler failed unexpectedly")


class _Listening(NamedTuple):
    asker: Asker
    address: tuple[str, int]

    async def disturb(self, data: bytes) -> None:
        """Send the data in two parts, check that another client is answered, and disconnect."""
        _, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data[: len(data) // 2])
            await asyncio.sleep(0)
            writer.write(data[len(data) // 2 :])
            await self._check_served()
        finally:
            writer.close()
        invariant(self.asker.traffic.handler_faults == 0, "a handler failed unexpectedly")

    async def _check_served(self) -> None:
        request = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(sized(frame(API_VERSIONS_API, 3, request)))
            size = int.from_bytes(await reader.readexactly(4))
            _, response = read_response(API_VERSIONS_API, 3, await reader.readexactly(size))
            invariant(response.error_code == 0, "a valid request is rejected")
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


TRY_SECONDS = 10.0


class HarmfulInput(NamedTuple):
    """An input that raised an unexpected error or took too long."""

    tries: int
    data: bytes
    error: BaseException


async def fuzz(target: Target, random: Random, *, seconds: float = 600, most: int | None = None) -> HarmfulInput | int:
    """Try inputs until one is harmful or time or `most` is reached. Return that input, or the number of inputs tried."""
    tries = 0
    deadline = time.monotonic() + seconds
    async with aclosing(target(random, FuzzSeeds(random))) as inputs:
        async for data, act in inputs:
            tries += 1
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    await act(data)
            except TailraceError:
                # Rejecting bad input is right.
                pass
            except Exception as error:  # noqa: BLE001  any other error is a defect
                return HarmfulInput(tries, data, error)
            if tries == most or time.monotonic() > deadline:
                break
    return tries
