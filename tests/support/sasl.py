"""The client's side of SASL, message by message, and a Kafka listener that asks for it."""

import asyncio
import base64
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.kafka.apis import create_authentication
from tailrace.kafka.listener import KafkaListener
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.sasl import ByBearer
from tailrace.model.clock import Clock, SystemClock
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.support.aio import until
from tests.support.brokers import running_broker
from tests.support.connections import Side
from tests.support.kafka import asker_of, frame, read_response, sized

REQUIRED = SecuritySettings(authentication="required", plain_without_tls=True)
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """Written from RFC 5802, apart from the server's side."""

    def __init__(
        self,
        name: str,
        password: str,
        mechanism: str = "SCRAM-SHA-256",
        *,
        nonce: str = "rOprNGfwEbeRWgbNEkqO",
        header: str = "n,,",
        final_header: str | None = None,
        nonce_before: str = "",
    ) -> None:
        """`nonce_before` is what the last message has before the nonce."""
        self._password = password.encode()
        self._hash = HASHES[mechanism]
        self._bare = f"n={name},r={nonce}".encode()
        self._header = header.encode()
        self._final_header = self._header if final_header is None else final_header.encode()
        self._nonce_before = nonce_before.encode()
        self._server_signature = b""

    def first(self) -> bytes:
        return self._header + self._bare

    def final(self, server_first: bytes) -> bytes:
        given = dict(part.split(b"=", 1) for part in server_first.split(b","))
        salt, iterations = base64.b64decode(given[b"s"]), int(given[b"i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproven = b"c=" + base64.b64encode(self._final_header) + b",r=" + self._nonce_before + given[b"r"]
        signed = self._bare + b"," + server_first + b"," + unproven
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return unproven + b",p=" + base64.b64encode(proof)

    def accepts(self, server_final: bytes) -> bool:
        return server_final == b"v=" + base64.b64encode(self._server_signature)


class SaslSide(Side):
    """The client's side of a connection."""

    async def ask(self, api: Api, request: KafkaMessage, version: int | None = None) -> Any:
        version = api.highest if version is None else version
        await self.send(sized(frame(api, version, request)))
        return read_response(api, version, await self.receive())[1]

    async def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        answer: SaslHandshakeResponse = await self.ask(SASL_HANDSHAKE_API, SaslHandshakeRequest(mechanism=mechanism))
        return answer

    async def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await self.ask(SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=message))
        return answer

    async def log_in(self, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> SaslAuthenticateResponse:
        """Return the last answer."""
        told = await self.handshake(mechanism)
        assert told.error_code == 0
        if mechanism == "PLAIN":
            return await self.authenticate(f"\0{name}\0{password}".encode())
        if mechanism == "OAUTHBEARER":
            return await self.authenticate(f"n,,\x01auth=Bearer {password}\x01\x01".encode())
        client = ScramClient(name, password, mechanism)
        first = await self.authenticate(client.first())
        if first.error_code:
            return first
        final = await self.authenticate(client.final(first.auth_bytes))
        assert final.error_code or client.accepts(final.auth_bytes)
        return final


class SecuredKafka:
    """A broker and its Kafka listener, which asks for authentication."""

    def __init__(self, broker: Broker, listener: KafkaListener, traffic: Traffic, port: int) -> None:
        self.broker = broker
        self.traffic = traffic
        self.listener = listener
        self.port = port
        self._sides: list[SaslSide] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self) -> SaslSide:
        side = SaslSide(*await asyncio.open_connection("127.0.0.1", self.port))
        self._sides.append(side)
        return side

    def inspect(self, later: float = 0.0) -> None:
        """Look at the connections as the listener does every second."""
        self.listener.registry.inspect(asyncio.get_running_loop().time() + later)

    def close(self) -> None:
        for side in self._sides:
            side.writer.close()


@asynccontextmanager
async def secured_kafka(
    security: SecuritySettings = REQUIRED,
    limits: Limits = DEFAULT_LIMITS,
    clock: Clock | None = None,
    by_bearer: ByBearer | None = None,
) -> AsyncIterator[SecuredKafka]:
    clock = clock or SystemClock()
    async with running_broker(clock=clock, limits=limits, security=security) as broker:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            asker = asker_of(broker, clock, limits=limits, port=bound.getsockname()[1])
            listener = KafkaListener(
                asker.dispatcher,
                bound,
                asker.traffic,
                limits,
                0.5,
                authentication=create_authentication(broker, security, clock, limits, by_bearer=by_bearer),
            )
            await listener.start()
            kafka = SecuredKafka(broker, listener, asker.traffic, bound.getsockname()[1])
            try:
                yield kafka
            finally:
                kafka.close()
                await listener.stop()
                await until(lambda: asker.traffic.open == 0)
                assert asker.traffic.held_bytes == 0
