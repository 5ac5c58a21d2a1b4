"""Where a checked batch goes, and what of it: the topic's own rules about duplicates and times, as part of a draft."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.commits.draft import Draft
from tailrace.broker.publishing.admission import CheckedBatch
from tailrace.broker.publishing.dedup import Window, Windows
from tailrace.broker.publishing.intake import Intake
from tailrace.broker.topics.live_topic import LiveTopic
from tailrace.model.commit import Append, Buffer
from tailrace.model.ids import Offset
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.wire.records import encode_batch
from tailrace.wire.restamped import with_append_time

UNKNOWN_OFFSET = -1


class Placed(NamedTuple):
    """What is to become of a batch."""

    live: LiveTopic
    append: Append | None
    """`None` when all of it is there already."""
    base_offset: Offset
    """What the sender is told; below 0 if there is no offset from which it could count all its records."""
    append_time: int
    duplicates: int


def place(intake: Intake, draft: Draft, windows: Windows, checked: CheckedBatch) -> Placed:
    """Put the batch at the end of its partition, without the records that are there already."""
    live, partition, batch, header = checked.live, checked.partition, checked.batch, checked.header
    fingerprinted = checked.records
    base_offset = told_offset = draft.next_offset(partition)
    records, max_timestamp = header.records, header.max_timestamp
    if fingerprinted is not None:
        batch, records, max_timestamp, told_offset = _without_duplicates(windows.of(live), checked, fingerprinted, base_offset)
    if records == 0:
        return Placed(live, None, told_offset, NO_TIMESTAMP, header.records)
    append_time = NO_TIMESTAMP
    if live.topic.settings.timestamps == "append":
        append_time = max_timestamp = intake.clock.now_ms()
        batch = with_append_time(batch, append_time)
    append = Append(partition, batch, records, max_timestamp, base_offset)
    draft.append(append)
    return Placed(live, append, told_offset, append_time, header.records - records)


def _without_duplicates(
    window: Window, checked: CheckedBatch, fingerprinted: Sequence[tuple[Record, bytes | None]], base_offset: Offset
) -> tuple[Buffer, int, int, Offset]:
    """The batch with what is new in it: its bytes, records and newest time, and the offset that its sender is told."""
    header = checked.header
    number = checked.partition.number
    fresh: list[Record] = []
    offsets: list[int] = []
    for record, fingerprint in fingerprinted:
        if fingerprint is not None:
            entry = window.first_of(fingerprint)
            if entry is not None:
                offsets.append(entry.offset if entry.partition == number else UNKNOWN_OFFSET)
                continue
            window.remember(fingerprint, number, Offset(base_offset + len(fresh)))
        offsets.append(base_offset + len(fresh))
        fresh.append(record)
    told_offset = _told(offsets)
    if len(fresh) == len(fingerprinted):
        return checked.batch, len(fresh), header.max_timestamp, told_offset
    if not fresh:
        return checked.batch, 0, header.max_timestamp, told_offset
    batch = encode_batch(
        fresh,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, len(fresh), max(record.timestamp for record in fresh), told_offset


def _told(offsets: Sequence[int]) -> Offset:
    """The offset from which the sender counts its records, if that gives for each of them where it is.

    If not, all that it gives is below 0: clients take that for unknown, and no record has it.
    """
    first = offsets[0]
    if first >= 0 and all(offset == first + number for number, offset in enumerate(offsets)):
        return Offset(first)
    return Offset(UNKNOWN_OFFSET - len(offsets) + 1)
