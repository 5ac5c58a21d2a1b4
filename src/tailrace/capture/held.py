"""Transactions that are held while a snapshot is read: how they lie in their topic, and how they are read from there.

A held transaction is kept as the messages that the database sent, each with the descriptions of the tables that it needs, so it
can be made into events later, by another process too. A large one is several records, of which the last is marked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tailrace.capture.change_events import CommitInfo
from tailrace.capture.pgoutput import Truncate, decode, encode_truncate, relation_oid
from tailrace.capture.transactions import CapturedTransaction, SpooledMessages
from tailrace.model.record import Record

_RECORD_BYTES = 512 << 10
_RELATION, _TRUNCATE, _MESSAGE = map(ord, "RTM")


class _HeldPart(msgspec.Struct, array_like=True, frozen=True):
    xid: int
    commit_lsn: int
    commit_time_us: int
    end_lsn: int
    is_last: bool
    messages: list[bytes]


class HeldTransaction(NamedTuple):
    transaction: CapturedTransaction
    next_offset: int
    """The offset behind its last record."""


def held_records(transaction: CapturedTransaction, messages: Iterable[bytes]) -> Iterator[Record]:
    """Yield the records of a transaction, some of whose messages are held."""
    at = transaction.at

    def record(part: list[bytes], *, is_last: bool) -> Record:
        held = _HeldPart(at.xid, at.commit_lsn, at.commit_time_us, transaction.end_lsn, is_last, part)
        return Record(None, msgspec.msgpack.encode(held), (), at.timestamp)

    part: list[bytes] = []
    size = 0
    for message in messages:
        if part and size + len(message) > _RECORD_BYTES:
            yield record(part, is_last=False)
            part, size = [], 0
        part.append(message)
        size += len(message)
    if part:
        yield record(part, is_last=True)


def held_transactions(records: Iterable[Record]) -> Iterator[HeldTransaction]:
    """Yield the whole transactions of records."""
    spool = SpooledMessages()
    for record in records:
        part = msgspec.msgpack.decode(record.value or b"", type=_HeldPart)
        for message in part.messages:
            spool.add(message)
        if part.is_last:
            at = CommitInfo(part.xid, part.commit_lsn, part.commit_time_us)
            whole: SpooledMessages | list[bytes] = spool if spool.is_large else list(spool)
            yield HeldTransaction(CapturedTransaction(at, part.end_lsn, whole, spool.size), record.offset + 1)
            spool = SpooledMessages()


class MessageSplit:
    """Divides the messages of transactions into those that are held and the rest."""

    def __init__(self, relations: dict[int, bytes], is_held: Callable[[bytes], bool], *, holds_all: bool) -> None:
        """`relations` are the last descriptions of tables in the stream, by number. `is_held` is asked with a description."""
        self._relations = relations
        self._is_held = is_held
        self._holds_all = holds_all

    def held(self, messages: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the messages that are held, each table described before its first change."""
        described: set[int] = set()
        for message in messages:
            tag = message[0]
            if tag == _RELATION:
                oid = relation_oid(message)
                self._relations[oid] = message
                described.discard(oid)
            elif tag == _MESSAGE:
                if self._holds_all:
                    yield message
            else:
                held = [oid for oid in changed_tables(message) if self._is_held(self._relations[oid])]
                for oid in held:
                    if oid not in described:
                        described.add(oid)
                        yield self._relations[oid]
                if held:
                    yield encode_truncate(held) if tag == _TRUNCATE else message

    def rest(self, messages: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the messages that are not held."""
        # Of its own, because the same messages may be divided again.
        relations = dict(self._relations)
        for message in messages:
            tag = message[0]
            if tag == _RELATION:
                relations[relation_oid(message)] = message
                if not self._is_held(message):
                    yield message
            elif tag == _MESSAGE:
                if not self._holds_all:
                    yield message
            else:
                free = [oid for oid in changed_tables(message) if not self._is_held(relations[oid])]
                if free:
                    yield encode_truncate(free) if tag == _TRUNCATE else message


def changed_tables(message: bytes) -> Sequence[int]:
    """Return the numbers of the tables that a message changes: one, unless it is a Truncate."""
    if message[0] != _TRUNCATE:
        return (relation_oid(message),)
    truncate = decode(message)
    return truncate.oids if isinstance(truncate, Truncate) else ()
