"""Payloads: each content is stored once, found by its reference, and gone when it is removed."""

import pytest

from tailrace.model.errors import LostPayloadError
from tailrace.model.record import PayloadReference, reference_to
from tailrace.store.contract import Store
from tests.contract.conftest import Reopen

A, B = b"a" * 200_000, b"b" * 300_000
OF_A, OF_B = reference_to(A), reference_to(B)


def test_a_payload_comes_back_as_it_was(store: Store) -> None:
    assert list(store.payloads.put({OF_A: A, OF_B: B})) == [OF_A, OF_B]
    assert store.payloads.get(OF_A) == A
    assert store.payloads.get(OF_B) == B
    assert sorted(store.payloads.digests()) == sorted([OF_A.digest, OF_B.digest])


def test_the_same_content_is_held_once(store: Store) -> None:
    store.payloads.put({OF_A: A})
    assert list(store.payloads.put({OF_A: A, OF_B: B})) == [OF_B]
    assert len(list(store.payloads.digests())) == 2


def test_what_was_removed_is_gone(store: Store) -> None:
    store.payloads.put({OF_A: A, OF_B: B})
    assert store.payloads.remove([OF_A.digest, bytes(32)]) == 1
    assert store.payloads.remove([OF_A.digest]) == 0
    assert list(store.payloads.digests()) == [OF_B.digest]
    with pytest.raises(LostPayloadError, match=f"{OF_A.digest.hex()} of 200000 bytes is missing"):
        store.payloads.get(OF_A)


def test_a_payload_that_was_never_put_is_missing(store: Store) -> None:
    assert list(store.payloads.digests()) == []
    with pytest.raises(LostPayloadError, match="is missing"):
        store.payloads.get(OF_A)


def test_a_payload_of_another_size_than_its_reference_is_not_returned(store: Store) -> None:
    store.payloads.put({OF_A: A})
    with pytest.raises(LostPayloadError, match="is damaged"):
        store.payloads.get(PayloadReference(OF_A.digest, 199_999))


def test_payloads_are_there_after_a_restart(store: Store, reopen: Reopen) -> None:
    store.payloads.put({OF_A: A, OF_B: B})
    store.payloads.remove([OF_B.digest])
    again = reopen()
    assert list(again.payloads.digests()) == [OF_A.digest]
    assert again.payloads.get(OF_A) == A
    assert list(again.payloads.put({OF_A: A})) == []
