"""Transactions that are held while a snapshot is read: what is held of them, and that they come back whole."""

from collections.abc import Iterable

from tailrace.capture.change_events import CommitInfo
from tailrace.capture.held import MessageSplit, held_records, held_transactions
from tailrace.capture.pgoutput import encode_truncate, relation_oid
from tailrace.capture.transactions import CapturedTransaction
from tailrace.model.ids import Offset
from tailrace.model.record import Record

_AT = CommitInfo(7, 1000, 1_700_000_000_000_000)


def _relation(oid: int, version: int = 1) -> bytes:
    return b"R" + oid.to_bytes(4) + bytes([version])


def _row(oid: int, text: bytes = b"x") -> bytes:
    return b"I" + oid.to_bytes(4) + text


_OUTBOX = b"M\1message"


def _split(held: set[int], *, holds_all: bool = False, known: Iterable[int] = (1, 2)) -> MessageSplit:
    relations = {oid: _relation(oid) for oid in known}
    return MessageSplit(relations, lambda relation: holds_all or relation_oid(relation) in held, holds_all=holds_all)


def test_changes_of_held_tables_are_apart_from_the_rest() -> None:
    messages = [_row(1), _row(2), _OUTBOX, _row(1, b"y")]
    split = _split({1})
    assert list(split.held(messages)) == [_relation(1), _row(1), _row(1, b"y")]
    assert list(split.rest(messages)) == [_row(2), _OUTBOX]


def test_a_truncate_of_several_tables_is_divided() -> None:
    split = _split({1})
    assert list(split.held([encode_truncate([1, 2])])) == [_relation(1), encode_truncate([1])]
    assert list(split.rest([encode_truncate([1, 2])])) == [encode_truncate([2])]


def test_everything_is_held_with_the_messages_of_the_outbox() -> None:
    split = _split(set(), holds_all=True)
    assert list(split.held([_row(1), _OUTBOX])) == [_relation(1), _row(1), _OUTBOX]
    assert list(split.rest([_row(1), _OUTBOX])) == []


def test_rows_before_a_change_of_the_schema_have_the_description_of_their_time() -> None:
    messages = [_row(1), _relation(1, 2), _row(1, b"y")]
    split = _split({1})
    # A large transaction is divided twice; the first time must leave no trace.
    assert list(split.rest(messages)) == []
    assert list(split.held(messages)) == [_relation(1), _row(1), _relation(1, 2), _row(1, b"y")]
    assert list(split.held([_row(1, b"z")])) == [_relation(1, 2), _row(1, b"z")]


def test_a_table_that_the_transaction_describes_first_is_held() -> None:
    messages = [_relation(3), _row(3)]
    split = _split({3})
    assert list(split.rest(messages)) == []
    assert list(split.held(messages)) == [_relation(3), _row(3)]


def test_held_transactions_come_back_whole_and_in_order() -> None:
    small = [_relation(1), _row(1)]
    large = [_row(1, bytes([number]) * 200_000) for number in range(20)]
    records: list[Record] = []
    for number, messages in enumerate((small, large, small)):
        transaction = CapturedTransaction(_AT._replace(xid=number + 1), 2000 + number, messages, 0)
        records += held_records(transaction, messages)
    assert len(records) > 5
    stored = [record._replace(offset=Offset(number)) for number, record in enumerate(records)]
    found = list(held_transactions(stored))
    assert [list(held.transaction.messages) for held in found] == [small, large, small]
    assert [(held.transaction.at.xid, held.transaction.end_lsn) for held in found] == [(1, 2000), (2, 2001), (3, 2002)]
    assert [held.next_offset for held in found] == [1, len(records) - 1, len(records)]


def test_what_is_not_whole_is_not_returned() -> None:
    messages = [_row(1, b"x" * 400_000), _row(1, b"y" * 400_000)]
    records = list(held_records(CapturedTransaction(_AT, 2000, messages, 0), messages))
    assert len(records) == 2
    assert list(held_transactions(records[:1])) == []
