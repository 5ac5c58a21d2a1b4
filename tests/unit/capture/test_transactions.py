"""Messages become whole transactions, whatever comes in between."""

from struct import pack

import pytest

from tailrace.capture.transactions import SpooledMessages, TransactionAssembler
from tailrace.model.errors import MalformedMessageError

_OID = pack(">I", 16384)


def begin(xid: int) -> bytes:
    return b"B" + pack(">QqI", 100, 5, xid)


def commit(end: int) -> bytes:
    return b"C" + pack(">BQQq", 0, end - 8, end, 5)


def insert(value: bytes, xid: int | None = None) -> bytes:
    stream = b"" if xid is None else pack(">I", xid)
    return b"I" + stream + _OID + b"N" + pack(">H", 1) + b"t" + pack(">I", len(value)) + value


def test_a_transaction_is_returned_with_its_commit() -> None:
    assembler = TransactionAssembler()
    assert assembler.is_between
    assert assembler.add(begin(7)) is None
    assert not assembler.is_between
    assert assembler.add(insert(b"a")) is None
    done = assembler.add(commit(200))
    assert done is not None
    assert (done.at.xid, done.at.commit_lsn, done.end_lsn, list(done.messages)) == (7, 192, 200, [insert(b"a")])
    assert assembler.is_between


def test_streamed_transactions_wait_for_their_commits_and_lose_what_was_rolled_back() -> None:
    assembler = TransactionAssembler()
    for xid, rows in ((1, [(1, b"a"), (11, b"gone"), (1, b"b")]), (2, [(2, b"other")])):
        assembler.add(b"S" + pack(">IB", xid, 1))
        for subxid, value in rows:
            assembler.add(insert(value, subxid))
        assembler.add(b"E")
    assembler.add(b"A" + pack(">II", 1, 11))
    assembler.add(b"A" + pack(">II", 2, 2))
    done = assembler.add(b"c" + pack(">IBQQq", 1, 0, 300, 310, 9))
    assert done is not None
    assert list(done.messages) == [insert(b"a"), insert(b"b")]
    assert (done.at.xid, done.end_lsn) == (1, 310)
    assert assembler.spooled_bytes == 0
    with pytest.raises(MalformedMessageError, match="did not begin"):
        assembler.add(b"c" + pack(">IBQQq", 2, 0, 300, 310, 9))


def test_a_commit_without_a_begin_is_an_error() -> None:
    with pytest.raises(MalformedMessageError, match="did not begin"):
        TransactionAssembler().add(commit(10))


def test_spooled_messages_are_read_back_in_order_however_many_there_are() -> None:
    spool = SpooledMessages()
    messages = [insert(bytes([number % 251]) * (number % 5000)) for number in range(4000)]
    for message in messages:
        spool.add(message)
    assert list(spool) == messages
    assert list(spool) == messages
    spool.add(b"I-last")
    assert list(spool) == [*messages, b"I-last"]
    spool.close()


def test_a_large_transaction_that_comes_at_once_is_spooled_too() -> None:
    assembler = TransactionAssembler()
    assembler.add(begin(7))
    messages = [insert(bytes([number]) * 100_000) for number in range(100)]
    for message in messages:
        assembler.add(message)
    done = assembler.add(commit(200))
    assert done is not None
    assert isinstance(done.messages, SpooledMessages)
    assert list(done.messages) == messages
    done.messages.close()
