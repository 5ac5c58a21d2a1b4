"""Records as the SDK returns them."""

import pytest

from tailrace.client import ConsumerRecord, InvalidRequestError


@pytest.mark.parametrize("payload", [b"plain text", b"", b'"\xff"', b'{"a": '])
def test_a_payload_that_is_not_json_is_named_and_its_bytes_can_be_read(payload: bytes) -> None:
    record = ConsumerRecord("orders", 2, 17, 40, 0, None, payload)
    with pytest.raises(
        InvalidRequestError, match=r"offset 17 of topic 'orders', partition 2, is not JSON .*; read its bytes from `payload`"
    ):
        _ = record.value
    assert record.payload == payload


def test_a_tombstone_has_no_value() -> None:
    assert ConsumerRecord("orders", 0, 0, 0, 0, None, None).value is None
