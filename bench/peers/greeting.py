"""Whether a server answers Kafka's first question: which brokers are there?

Asked without a client library, which would take its time between two attempts. One TCP connection listening is not enough: a
server may accept clients long before it has an answer for them.
"""

import socket
from struct import Struct

from tailrace.model.address import Address
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.cluster import METADATA_API, MetadataRequest, MetadataResponse

_VERSION = 8
"""Old enough for every server and the last one with a simple header."""
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4
_CORRELATION_BYTES = 4
_PATIENCE_SECONDS = 5.0


def answers_kafka(address: Address) -> bool:
    """Whether it names at least one broker."""
    try:
        with socket.create_connection(address, timeout=_PATIENCE_SECONDS) as connection:
            connection.sendall(_question())
            size = int.from_bytes(_receive(connection, _SIZE_BYTES), "big")
            answer = _receive(connection, size)
    except OSError:
        return False
    response = MessageCodec().read(MetadataResponse, _VERSION, False, MessageSource(answer, _CORRELATION_BYTES))
    return bool(response.brokers)


def _question() -> bytes:
    body = bytearray()
    MessageCodec().write(MetadataRequest(topics=()), _VERSION, False, body)
    head = _HEAD.pack(_HEAD.size - _SIZE_BYTES + len(body), METADATA_API.key, _VERSION, 1, -1)
    return head + body


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise ConnectionError("closed before it answered")
        received += more
    return bytes(received)
