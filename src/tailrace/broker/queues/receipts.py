"""Receipts: the text by which a consumer speaks of one delivery. To it the text means nothing; it names the record and a token
that no other delivery has, so an old one is told from the one in force.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import Offset, Partition, TopicId

_RECEIPT = Struct(">IIqQ")


class Receipt(NamedTuple):
    partition: Partition
    offset: Offset
    token: int


def write_receipt(partition: Partition, offset: Offset, token: int) -> str:
    return urlsafe_b64encode(_RECEIPT.pack(*partition, offset, token)).decode()


def read_receipt(text: str) -> Receipt:
    try:
        topic_id, number, offset, token = _RECEIPT.unpack(urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, StructError):
        raise InvalidRequestError(f"{text[:64]!r} is no receipt; send those that receive gave you, as they are") from None
    return Receipt(Partition(TopicId(topic_id), number), Offset(offset), token)
