"""A Kafka server that stores nothing, as a program, to measure what a client can do by itself.

It reads produce requests from the socket without looking at the records. On Linux they are not even copied out of the kernel
(`MSG_TRUNC`). Every request is answered at once, with offset 0. Nothing can be read from it.

One thread reads each request to its end before it turns to the next, so it is meant for clients that send what they announce.
"""

import select
import socket
import sys
from struct import Struct

from tailrace.kafka.dispatch import ApiRoute, Dispatcher, KafkaClient, RequestContext
from tailrace.kafka.handlers.metadata import VersionHandlers
from tailrace.kafka.metrics import Traffic
from tailrace.model.address import Address, parse_address
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.wire.fast_produce import ProducedPartition, ProducedTopic, write_produce_response
from tailrace.wire.message import NO_UUID
from tailrace.wire.messages.cluster import (
    METADATA_API,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.wire.messages.fetch import (
    LIST_OFFSETS_API,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.wire.messages.produce import PRODUCE_API
from tailrace.wire.messages.topics import CREATE_TOPICS_API, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

_NODE = 1
_UNKNOWN_TOPIC = 3
_AT_ONCE = 4_096
_SIZE_BYTES = 4
_KEY_BYTES = 2
_PRODUCE_KEY = PRODUCE_API.key.to_bytes(_KEY_BYTES, "big")
_NAMED_UNTIL = 12
"""Later versions identify topics by id."""
_LONGEST_HEAD = 512
"""An upper bound for the bytes before the records."""
_DISCARDED = 16 * MIB
_REQUEST_HEAD = Struct(">hhih")
_RESPONSE_HEAD = Struct(">iib")
_INT32 = Struct(">i")
_BEFORE_TOPICS = 1 + 1 + 2 + 4
"""No tags of the header, no transactional id, acks, timeout."""


class VoidServer:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._partitions: dict[str, int] = {}
        dispatcher: Dispatcher
        routes = [
            ApiRoute(PRODUCE_API, _misled, highest=_NAMED_UNTIL, claimed_lowest=0),
            ApiRoute(METADATA_API, self._describe),
            ApiRoute(CREATE_TOPICS_API, self._create),
            ApiRoute(LIST_OFFSETS_API, _list_offsets),
            *VersionHandlers(lambda: dispatcher.offered).routes(),
        ]
        self._dispatcher = dispatcher = Dispatcher(routes, Traffic(), DEFAULT_LIMITS)
        self._sink = bytearray(_DISCARDED)

    def serve(self) -> None:
        """Serve until the process is killed."""
        listening = socket.create_server(self._address, backlog=1_000)
        clients: dict[int, socket.socket] = {}
        ready = select.epoll()
        ready.register(listening, select.EPOLLIN)
        while True:
            for number, _ in ready.poll():
                if number == listening.fileno():
                    client, _ = listening.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    clients[client.fileno()] = client
                    ready.register(client, select.EPOLLIN)
                elif not self._answer(clients[number]):
                    ready.unregister(number)
                    clients.pop(number).close()

    def _answer(self, client: socket.socket) -> bool:
        """Handle everything that was received, and the rest of a request that has begun. Returns False if the client left."""
        try:
            data = client.recv(_AT_ONCE)
            is_there = bool(data)
            while data:
                data = _with_more(client, data, _SIZE_BYTES + _KEY_BYTES)
                size = int.from_bytes(data[:_SIZE_BYTES], "big")
                is_produce = data.startswith(_PRODUCE_KEY, _SIZE_BYTES)
                data = _with_more(client, data, _SIZE_BYTES + (min(size, _LONGEST_HEAD) if is_produce else size))
                request, data = data[_SIZE_BYTES : _SIZE_BYTES + size], data[_SIZE_BYTES + size :]
                self._discard(client, size - len(request))
                client.sendall(_produced(request) if is_produce else self._dispatched(request))
        except ConnectionError:
            return False
        return is_there

    def _discard(self, client: socket.socket, size: int) -> None:
        while size > 0:
            size -= client.recv_into(self._sink, min(size, _DISCARDED), socket.MSG_TRUNC | socket.MSG_WAITALL)

    def _dispatched(self, request: bytes) -> bytes:
        reply = self._dispatcher.dispatch(bytearray(request), KafkaClient("", 0))
        assert isinstance(reply, tuple), reply
        return b"".join(reply)

    def _describe(self, call: RequestContext, request: MetadataRequest) -> MetadataResponse:
        host, port = self._address
        names = self._partitions if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=_NODE, host=host, port=port),),
            controller_id=_NODE,
            topics=tuple(map(self._described, names)),
        )

    def _described(self, name: str) -> MetadataResponseTopic:
        count = self._partitions.get(name, 0)
        return MetadataResponseTopic(
            error_code=0 if count else _UNKNOWN_TOPIC,
            name=name,
            partitions=tuple(
                MetadataResponsePartition(partition_index=number, leader_id=_NODE, replica_nodes=(_NODE,), isr_nodes=(_NODE,))
                for number in range(count)
            ),
        )

    def _create(self, call: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self._partitions.update((topic.name, topic.num_partitions) for topic in request.topics)
        return CreateTopicsResponse(topics=tuple(CreatableTopicResult(name=topic.name) for topic in request.topics))


def _list_offsets(call: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=0) for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _misled(call: RequestContext, request: object) -> None:
    raise AssertionError("producers are answered without a look at their records")


def _produced(request: bytes) -> bytes:
    """Return the response to a request without its records. It has one batch, as librdkafka's requests do."""
    _, version, correlation_id, id_bytes = _REQUEST_HEAD.unpack_from(request)
    at = _REQUEST_HEAD.size + max(0, id_bytes) + _BEFORE_TOPICS
    topics, name_bytes = request[at] - 1, request[at + 1] - 1
    after_name = at + 2 + name_bytes
    partitions, (number,) = request[after_name] - 1, _INT32.unpack_from(request, after_name + 1)
    assert (topics, partitions) == (1, 1), f"a request of version {version} for {topics} topics, {partitions} partitions"
    produced = ProducedTopic(str(request[at + 2 : after_name], "utf-8"), NO_UUID, (ProducedPartition(number, 0, 0, -1, 0),))
    body = write_produce_response(version, (produced,))
    return _RESPONSE_HEAD.pack(_RESPONSE_HEAD.size - _SIZE_BYTES + len(body), correlation_id, 0) + body


def _with_more(client: socket.socket, data: bytes, wanted: int) -> bytes:
    """Read until the data has at least this many bytes."""
    while len(data) < wanted:
        more = client.recv(wanted - len(data))
        if not more:
            raise ConnectionError("closed in the middle of a request")
        data += more
    return data


if __name__ == "__main__":
    VoidServer(parse_address(sys.argv[1])).serve()
