"""Logins by SCRAM-SHA-512 over Kafka's protocol without a client library, which would spend the time on hashing the password.

The password is salted and hashed once for each salt that a server sends; after that a login costs its sender some microseconds.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import ssl
from contextlib import suppress
from struct import Struct
from typing import Any

import msgspec

from bench.peers.servers import ClientSettings
from tailrace.model.address import Address
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MECHANISM = "SCRAM-SHA-512"
_HASH = "sha512"
_HEADER = b"n,,"
_NONCE_BYTES = 18
_VERSION = 1
"""Of both requests; the last with a simple header."""
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4
_FAREWELL_SECONDS = 1.0
_CORRELATION_BYTES = 4


class Account(msgspec.Struct, frozen=True):
    """How a client logs in."""

    user: str
    password: str
    authority: str = ""
    """File with the certificate of the authority of the server's. Without it nothing is encrypted."""

    @property
    def client_settings(self) -> ClientSettings:
        settings = {
            "security.protocol": "SASL_SSL" if self.authority else "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
            # What goes wrong is an error of a call. Else a consumer says on stderr that it was closed before it had logged in
            # to the coordinator of its group, which it does not use.
            "log_level": "2",
        }
        return {**settings, "ssl.ca.location": self.authority} if self.authority else settings

    @property
    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.authority) if self.authority else None


class BadLogin(Exception):
    """A server did not keep to the protocol, or does not know the password either."""


class Logins:
    """Logs in to a server with one account, on a new connection each time."""

    def __init__(self, address: Address, account: Account, source: str | None = None) -> None:
        """`source` is the address to connect from."""
        self._address = address
        self._account = account
        self._tls = account.tls
        self._source = None if source is None else (source, 0)
        self._keys: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}
        self.cipher = ""
        """The version of TLS and the cipher of the last connection."""

    async def log_in(self) -> bool:
        """Return whether the server lets the account in. Raises `BadLogin`."""
        reader, writer = await asyncio.open_connection(*self._address, ssl=self._tls, local_addr=self._source)
        try:
            self._note_cipher(writer)
            ask = _Asker(reader, writer).ask
            handshake: SaslHandshakeResponse = await ask(SASL_HANDSHAKE_API, SaslHandshakeRequest(mechanism=MECHANISM))
            if handshake.error_code:
                raise BadLogin(f"the server does not offer {MECHANISM}, but {', '.join(handshake.mechanisms)}")
            bare = f"n={self._account.user},r={secrets.token_urlsafe(_NONCE_BYTES)}".encode()
            first: SaslAuthenticateResponse = await ask(
                SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=_HEADER + bare)
            )
            if first.error_code:
                raise BadLogin(f"the server refused the first message of SCRAM: {first.error_message}")
            message, signature = self._prove(bare, first.auth_bytes)
            final: SaslAuthenticateResponse = await ask(SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=message))
            if not final.error_code and final.auth_bytes != b"v=" + base64.b64encode(signature):
                raise BadLogin("the server let the client in without knowing its password")
            return not final.error_code
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await writer.wait_closed()

    def _prove(self, bare: bytes, server_first: bytes) -> tuple[bytes, bytes]:
        """Return the client's last message, and the signature that the server is to answer with."""
        given = dict(part.split(b"=", 1) for part in server_first.split(b","))
        client_key, server_key = self._keys_of(base64.b64decode(given[b"s"]), int(given[b"i"]))
        unproven = b"c=" + base64.b64encode(_HEADER) + b",r=" + given[b"r"]
        signed = bare + b"," + server_first + b"," + unproven
        signature = hmac.digest(hashlib.new(_HASH, client_key).digest(), signed, _HASH)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        return unproven + b",p=" + base64.b64encode(proof), hmac.digest(server_key, signed, _HASH)

    def _keys_of(self, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
        """Return the client's and the server's key, which are kept."""
        keys = self._keys.get((salt, iterations))
        if keys is None:
            salted = hashlib.pbkdf2_hmac(_HASH, self._account.password.encode(), salt, iterations)
            keys = hmac.digest(salted, b"Client Key", _HASH), hmac.digest(salted, b"Server Key", _HASH)
            self._keys[salt, iterations] = keys
        return keys

    def _note_cipher(self, writer: asyncio.StreamWriter) -> None:
        found = writer.get_extra_info("ssl_object")
        if found is not None:
            self.cipher = f"{found.version()}, {found.cipher()[0]}"


class _Asker:
    """Sends requests over a connection, one at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._codec = MessageCodec()

    async def ask(self, api: Api, request: KafkaMessage) -> Any:
        body = bytearray()
        self._codec.write(request, _VERSION, False, body)
        self._writer.write(_HEAD.pack(_HEAD.size - _SIZE_BYTES + len(body), api.key, _VERSION, 1, -1) + body)
        size = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "big")
        answer = await self._reader.readexactly(size)
        return self._codec.read(api.response, _VERSION, False, MessageSource(answer, _CORRELATION_BYTES))


def can_log_in(address: Address, account: Account) -> bool:
    """Return whether a server lets an account in."""
    try:
        return asyncio.run(Logins(address, account).log_in())
    except (OSError, EOFError):
        return False


def cipher_of(address: Address, account: Account) -> str:
    """Return the version of TLS and the cipher that a server and a client with OpenSSL's settings agree on."""
    logins = Logins(address, account)
    asyncio.run(logins.log_in())
    return logins.cipher
