"""A loop of psycopg2 that receives a stream of changes and discards it: how fast Python can take it at best."""

import select
import time
from contextlib import suppress
from typing import Any

from bench.capture.orders import PUBLICATION, Orders
from bench.kafka.tasks import Span
from bench.peers.kafka import NotObtainable
from bench.peers.postgres import url_of
from bench.peers.servers import PeerFailure

_OPTIONS = {"proto_version": "1", "publication_names": PUBLICATION, "messages": "true"}
_BEGIN_SECONDS = 60.0


def discard_stream(orders: Orders, slot: str, end: int) -> Span:
    """Receive everything of the slot up to the message at this LSN, confirm it, and return the time between the first message
    and that one."""
    try:
        import psycopg2
        from psycopg2.extras import LogicalReplicationConnection, StopReplication
    except ImportError as why:
        raise NotObtainable("psycopg2 is not installed; `pip install psycopg2-binary` brings it") from why

    def take(message: Any) -> None:
        if message.data_start >= end:
            raise StopReplication

    connection = psycopg2.connect(url_of(orders.address), connection_factory=LogicalReplicationConnection)
    try:
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name=slot, options=_OPTIONS, decode=False)
            deadline = time.monotonic() + _BEGIN_SECONDS
            while cursor.read_message() is None:
                if time.monotonic() > deadline:
                    raise PeerFailure(f"PostgreSQL sent nothing of the slot {slot} within {_BEGIN_SECONDS:.0f} s")
                select.select([connection], [], [], 0.1)
            began = time.perf_counter()
            with suppress(StopReplication):
                cursor.consume_stream(take)
            ended = time.perf_counter()
    finally:
        connection.close()
    orders.advance_slot(slot, end)
    return Span(began, ended)
