"""The check of numbered records passes only if everything that was sent arrived, once, in order and unchanged."""

from collections.abc import Sequence

import pytest

from bench.kafka.client import sent_by
from bench.kafka.tasks import BadDelivery, DeliveryCheck, Lane, Load, Numbering

NUMBERING = Numbering(50)
SENT = {Lane(0, 0): 3, Lane(1, 1): 2}


def read(numbers: Sequence[int], partition: int = 0, sender: int = 0) -> list[tuple[int, bytes]]:
    return [(partition, NUMBERING.record(sender, number)) for number in numbers]


ALL = [*read([0, 1, 2]), *read([0, 1], 1, 1)]


def judge(found: Sequence[tuple[int, bytes]]) -> None:
    ledger = DeliveryCheck(NUMBERING)
    for partition, value in found:
        ledger.tick(partition, value)
    ledger.close(SENT)


def test_what_was_sent_passes_however_partitions_are_mixed() -> None:
    judge(ALL)
    judge([ALL[3], ALL[0], ALL[4], ALL[1], ALL[2]])


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        pytest.param([ALL[0], *ALL[2:]], "lost or out of order", id="lost"),
        pytest.param(ALL[:2] + ALL[3:], "brought 2 records, and 3 were sent", id="lost at the end"),
        pytest.param([*ALL[:2], *ALL[1:]], "doubled or out of order", id="doubled"),
        pytest.param([*ALL, *read([2], 1, 1)], "brought 3 records, and 2 were sent", id="too many"),
        pytest.param([ALL[0], ALL[2], ALL[1], *ALL[3:]], "out of order", id="out of order"),
        pytest.param([*ALL[:3], *read([0, 1], 0, 1)], "brought", id="in the wrong partition"),
        pytest.param([(0, ALL[0][1][:-1] + b"?"), *ALL[1:]], "not one that was sent", id="changed"),
        pytest.param([(0, b""), *ALL[1:]], "not one that was sent", id="empty"),
    ],
)
def test_what_was_not_sent_is_found(found: Sequence[tuple[int, bytes]], complaint: str) -> None:
    with pytest.raises(BadDelivery, match=complaint):
        judge(found)


@pytest.mark.parametrize("partitions", [1, 3, 12])
@pytest.mark.parametrize(("records", "record_bytes"), [(1, 100), (2_500, 100), (250, 10_000), (7_001, 1_000)])
def test_every_record_of_a_load_has_its_lane(records: int, record_bytes: int, partitions: int) -> None:
    sent = sent_by(Load(topic="any", records=records, record_bytes=record_bytes, partitions=partitions))

    assert sum(sent.values()) == records
    assert {lane.partition for lane in sent} == set(range(partitions))
    assert all(lane.sender == lane.partition for lane in sent)


def test_senders_share_a_partition_evenly() -> None:
    load = Load(topic="any", records=6, record_bytes=100, senders=3)

    assert sent_by(load) == {Lane(0, 0): 2, Lane(0, 1): 2, Lane(0, 2): 2}
