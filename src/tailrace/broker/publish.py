"""Messages for any number of topics, in one commit: all of them are there, or none.

A message gets a partition by its key, else the next one in turn, and an id that travels with it as a header.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.admission import check_batch_size, check_message, message_id_of, reserved
from tailrace.broker.commit import Committer, Proposal
from tailrace.broker.dedup import fingerprint_of_content, fingerprint_of_id
from tailrace.broker.draft import Draft
from tailrace.broker.intake import Intake, Windows
from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.publishers import Publishers
from tailrace.broker.snowflake import Snowflakes
from tailrace.model.changes import Append, Changes, Receipt
from tailrace.model.errors import LimitExceededError
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.record import MESSAGE_ID_HEADER, Message, NumberedPublish, Published, Record
from tailrace.wire.batch import HEADER_BYTES
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch, encoded_size_bound


class Publisher:
    def __init__(self, intake: Intake, committer: Committer, snowflakes: Snowflakes, publishers: Publishers) -> None:
        self._intake = intake
        self._committer = committer
        self._snowflakes = snowflakes
        self._publishers = publishers

    async def publish(self, messages: Sequence[Message], *, by_server: bool = False) -> list[Published]:
        """Where each message is, in the order of the messages. If one is refused, nothing changes.

        Only the server itself writes to topics with reserved names.
        """
        if not messages:
            return []
        return await self._committer.submit(self.propose(messages, by_server=by_server))

    async def publish_once(self, numbered: NumberedPublish, messages: Sequence[Message]) -> list[Published]:
        """The same, and stored once however often it is sent. What is sent again is answered as a duplicate."""
        self._publishers.check(numbered)
        if not messages:
            return []
        once = PublishOnce(self._publishers, numbered)
        return await self._committer.submit(self.propose(messages, once=once))

    def propose(
        self, messages: Sequence[Message], *, by_server: bool = False, once: "PublishOnce | None" = None
    ) -> "PublishMessages":
        """The publish of these messages, checked and not yet submitted."""
        limits = self._intake.limits
        if len(messages) > limits.publish_records:
            raise LimitExceededError(
                f"the publish has {len(messages)} messages, more than publish_records allows ({limits.publish_records})"
            )
        now = self._intake.clock.now_ms()
        prepared = [self._prepare(message, now, by_server) for message in messages]
        return PublishMessages(self._intake, self._snowflakes, _route(prepared), once)

    def _prepare(self, message: Message, now_ms: int, by_server: bool) -> "_Prepared":
        intake = self._intake
        live = intake.topics.get(message.topic)
        if live.is_reserved and not by_server:
            raise reserved(live)
        check_message(message, now_ms, intake.limits)
        given_id = message_id_of(message, intake.limits)
        message_id = given_id if given_id is not None else str(self._snowflakes.next()).encode()
        headers = [(name, value) for name, value in message.headers if name != MESSAGE_ID_HEADER]
        headers.append((MESSAGE_ID_HEADER, message_id))
        timestamp = now_ms if message.timestamp is None else message.timestamp
        record = Record(message.key, message.value, headers, timestamp)
        size = encoded_size_bound(record)
        if HEADER_BYTES + size > live.max_batch_bytes:
            check_batch_size(len(encode_batch([record])), live, intake.limits)
        dedup = live.topic.settings.dedup
        fingerprint = None
        if dedup == "content":
            fingerprint = fingerprint_of_content(message.key, message.value)
        elif dedup == "id" and given_id is not None:
            fingerprint = fingerprint_of_id(given_id)
        partition = None if message.partition is None else live.partition(message.partition)
        return _Prepared(live, partition, record, message_id.decode(errors="replace"), fingerprint, size)


class PublishOnce(NamedTuple):
    """A publish that may have come before, and those who know."""

    publishers: Publishers
    numbered: NumberedPublish


class _Prepared(NamedTuple):
    """A message that is fit to be stored."""

    live: LiveTopic
    partition: Partition | None
    record: Record
    message_id: str
    fingerprint: bytes | None
    size_bound: int


class _Routed(NamedTuple):
    message: _Prepared
    partition: Partition


class _Place(NamedTuple):
    partition: int
    offset: Offset
    is_duplicate: bool


class PublishMessages(Proposal[list[Published]]):
    __slots__ = (
        "_appends",
        "_before",
        "_evicted",
        "_groups",
        "_intake",
        "_mark_ms",
        "_once",
        "_places",
        "_routed",
        "_snowflakes",
        "_windows",
    )

    def __init__(self, intake: Intake, snowflakes: Snowflakes, routed: list[_Routed], once: PublishOnce | None = None) -> None:
        self._intake = intake
        self._snowflakes = snowflakes
        self._routed = routed
        self._places: list[_Place] = []
        self._groups: dict[Partition, list[int]] = {}
        self._appends: list[tuple[LiveTopic, Append]] = []
        self._windows: Windows | None = None
        self._mark_ms: int | None = None
        self._once = once
        self._before: list[Published] | None = None
        """What became of the same publish when it came before."""
        self._evicted: list[str] = []

    @property
    def held_bytes(self) -> int:
        return sum(routed.message.size_bound for routed in self._routed)

    def decide(self) -> Changes | None:
        draft = Draft(self._intake.store)
        once = self._once
        if once is not None:
            self._before = once.publishers.find(draft, once.numbered, len(self._routed))
            if self._before is not None:
                return None
        windows = self._windows = Windows(self._intake.dedup, draft)
        groups = self._find_places(draft, windows)
        windows.close()
        if not groups:
            return None
        if groups != self._groups:
            self._groups = groups
            self._appends = [encoded for partition, indexes in groups.items() for encoded in self._encode(partition, indexes)]
        for _, append in self._appends:
            draft.append(append._replace(base_offset=draft.next_offset(append.partition)))
        self._mark_ms = self._snowflakes.due_mark()
        if self._mark_ms is not None:
            draft.put(keys.MESSAGE_ID_MARK, self._mark_ms.to_bytes(8))
        if once is not None:
            self._evicted = once.publishers.remember(draft, once.numbered, self._published({}))
        return draft.changes()

    def settled(self, receipt: Receipt | None) -> list[Published]:
        if self._before is not None:
            return self._before
        if self._mark_ms is not None:
            self._snowflakes.marked(self._mark_ms)
        if self._once is not None and receipt is not None:
            self._once.publishers.heard_of(self._once.numbered, self._evicted)
        if self._windows is not None:
            self._windows.count()
        cursors: dict[int, Cursor] = {}
        if receipt is not None:
            for live, append in self._appends:
                self._intake.arrived(live, append.partition, append.records, len(append.batch))
            in_order = (index for indexes in self._groups.values() for index in indexes)
            cursors = {index: Cursor(receipt.cursor + nth) for nth, index in enumerate(in_order)}
        return self._published(cursors)

    def _published(self, cursors: Mapping[int, Cursor]) -> list[Published]:
        published = []
        for index, ((message, _), place) in enumerate(zip(self._routed, self._places, strict=True)):
            published.append(
                Published(
                    message.live.topic.name,
                    place.partition,
                    place.offset,
                    cursors.get(index),
                    message.message_id,
                    place.is_duplicate,
                )
            )
        return published

    def _find_places(self, draft: Draft, windows: Windows) -> dict[Partition, list[int]]:
        """Say where each message goes or is already, and group those that are new by partition."""
        places: list[_Place] = []
        groups: dict[Partition, list[int]] = {}
        for index, (message, partition) in enumerate(self._routed):
            group = groups.get(partition, [])
            offset = Offset(draft.next_offset(partition) + len(group))
            fingerprint = message.fingerprint
            if fingerprint is not None:
                window = windows.of(message.live)
                first = window.first_of(fingerprint)
                if first is not None:
                    places.append(_Place(first.partition, first.offset, True))
                    continue
                window.remember(fingerprint, partition.number, offset)
            places.append(_Place(partition.number, offset, False))
            group.append(index)
            groups[partition] = group
        self._places = places
        return groups

    def _encode(self, partition: Partition, indexes: list[int]) -> Iterator[tuple[LiveTopic, Append]]:
        """The messages of one partition in as few batches as the topic's largest batch allows."""
        limits = self._intake.limits
        live = self._routed[indexes[0]].message.live
        append_time = self._intake.clock.now_ms() if live.topic.settings.timestamps == "append" else None
        records: list[Record] = []
        size = HEADER_BYTES
        for index in indexes:
            message = self._routed[index].message
            full = size + message.size_bound > live.max_batch_bytes or len(records) == limits.batch_records
            if records and full:
                yield live, _encoded(partition, records, append_time)
                records = []
                size = HEADER_BYTES
            records.append(message.record)
            size += message.size_bound
        yield live, _encoded(partition, records, append_time)


def _encoded(partition: Partition, records: list[Record], append_time: int | None) -> Append:
    max_timestamp = append_time if append_time is not None else max(record.timestamp for record in records)
    return Append(partition, encode_batch(records, append_time=append_time), len(records), max_timestamp)


def _route(prepared: list[_Prepared]) -> list[_Routed]:
    """Give each message its partition: the one it asks for, that of its key, or the next in turn."""
    routed = []
    for message in prepared:
        live = message.live
        partition = message.partition
        if partition is None:
            key = message.record.key
            if key is not None:
                number = partition_for_key(key, len(live.partitions))
            else:
                number = live.next_partition % len(live.partitions)
                live.next_partition = number + 1
            partition = live.partitions[number]
        routed.append(_Routed(message, partition))
    return routed
