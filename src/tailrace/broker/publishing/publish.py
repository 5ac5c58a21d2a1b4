"""Publishes messages to any number of topics in one commit: all of them are stored, or none.

A message gets its partition by its key, or else round robin, and an id that travels with it as a header. Duplicates are left
out, and the new messages of a partition become one batch, unless that would be too large or a value is stored beside the log.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal, StillInFlight
from tailrace.broker.payloads import PayloadReferences, Payloads, PayloadUse
from tailrace.broker.producers.publishers import Publishers
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.publishing.dedup import DedupWindows, fingerprint_of_content, fingerprint_of_id
from tailrace.broker.publishing.snowflake import Snowflakes
from tailrace.broker.publishing.validation import (
    check_batch_size,
    check_key,
    check_message,
    message_id_of,
    reserved_topic_error,
)
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, TailraceError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import KIB
from tailrace.model.record import MESSAGE_ID_HEADER, Message, NumberedPublish, PayloadReference, Published, Record
from tailrace.wire.batch import HEADER_BYTES, read_header
from tailrace.wire.compression import Compression
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.payload_references import encode_payload_reference, expanded_size
from tailrace.wire.records import encode_batch, encoded_size_bound

_ENCODED_INLINE_BYTES = 4 * KIB
"""Up to so many bytes are compressed on the event loop."""


class PublishOnce(NamedTuple):
    """Identifies a publish that may have been sent before."""

    publishers: Publishers
    numbered: NumberedPublish


class PreparedMessage(NamedTuple):
    """A checked message, as a record."""

    live: LiveTopic
    partition: PartitionId | None
    record: Record
    message_id: str
    fingerprint: bytes | None
    size_bound: int
    """The most bytes that the record takes in a batch, with its whole value."""
    reference: PayloadReference | None = None
    """Refers to the value if it is stored beside the log."""

    @property
    def held_bytes(self) -> int:
        return self.size_bound if self.reference is None else self.size_bound - self.reference.size


class RoutedMessage(NamedTuple):
    message: PreparedMessage
    partition: PartitionId


class _Encoded(NamedTuple):
    live: LiveTopic
    append: Append
    size: int
    """Bytes of the batch as readers get it."""
    reference: PayloadReference | None = None


class Publisher:
    """Checks messages, gives them their partitions, and submits them."""

    def __init__(
        self,
        context: PublishContext,
        committer: Committer,
        snowflakes: Snowflakes,
        publishers: Publishers,
        payloads: Payloads,
        references: PayloadReferences,
    ) -> None:
        self._context = context
        self._committer = committer
        self._snowflakes = snowflakes
        self._publishers = publishers
        self._payloads = payloads
        self._references = references

    async def publish(self, messages: Sequence[Message], *, by_server: bool = False) -> list[Published]:
        """Publish the messages and return where each is stored, in their order. If one is rejected, none is stored.

        Only with `by_server` may messages go to topics with reserved_topic_error names, whoever the principal is.
        """
        if not messages:
            return []
        if self._context.permissions.is_on and not by_server:
            self._require_publish(messages)
        return await self._submit(self.propose(messages, by_server=by_server))

    async def publish_once(self, numbered: NumberedPublish, messages: Sequence[Message]) -> list[Published]:
        """Publish the messages once, however often the same numbered publish is sent.

        A repeated one is answered as duplicate.
        """
        self._publishers.check(numbered)
        if not messages:
            return []
        if self._context.permissions.is_on:
            self._require_publish(messages)
        once = PublishOnce(self._publishers, numbered)
        return await self._submit(self.propose(messages, once=once))

    def propose(
        self, messages: Sequence[Message], *, by_server: bool = False, once: PublishOnce | None = None
    ) -> "PublishMessages":
        """Check the messages and return the proposal that publishes them. Call its `prepare` before you submit it.

        Permissions are not checked.
        """
        limits = self._context.limits
        if len(messages) > limits.publish_records:
            raise LimitExceededError(
                f"the publish has {len(messages)} messages, more than publish_records allows ({limits.publish_records})"
            )
        now = self._context.clock.now_ms()
        prepared = [self._prepare(message, now, by_server) for message in messages]
        return PublishMessages(self._context, self._snowflakes, self._payloads, self._references, _route(prepared), once)

    def _require_publish(self, messages: Sequence[Message]) -> None:
        for topic in {message.topic for message in messages}:
            self._context.topics.require("publish", topic)

    async def _submit(self, publish: "PublishMessages") -> list[Published]:
        await publish.prepare()
        return await self._committer.submit(publish)

    def _prepare(self, message: Message, now_ms: int, by_server: bool) -> PreparedMessage:
        context = self._context
        live = context.topics.get(message.topic)
        if live.is_reserved and not by_server:
            raise reserved_topic_error(live.topic.name)
        check_message(message, now_ms, context.limits)
        check_key(message.key, live)
        given_id = message_id_of(message, context.limits)
        if given_id is None:
            name = str(self._snowflakes.next())
            message_id = name.encode()
        else:
            name = given_id.decode(errors="replace")
            message_id = given_id
        _, value, key, given, number, timestamp, _ = message
        headers = [(each, said) for each, said in given if each != MESSAGE_ID_HEADER] if given else []
        headers.append((MESSAGE_ID_HEADER, message_id))
        record = Record(key, value, headers, now_ms if timestamp is None else timestamp)
        size = encoded_size_bound(record)
        if HEADER_BYTES + size > live.max_batch_bytes:
            check_batch_size(len(encode_batch([record])), live, context.limits)
        dedup = live.topic.settings.dedup
        fingerprint = None
        if dedup == "content":
            fingerprint = fingerprint_of_content(key, value)
        elif dedup == "id" and given_id is not None:
            fingerprint = fingerprint_of_id(given_id)
        partition = None if number is None else live.partition(number)
        return PreparedMessage(live, partition, record, name, fingerprint, size)


class PublishMessages(Proposal[list[Published]]):
    """Publishes checked messages in one commit."""

    __slots__ = (
        "_appends",
        "_context",
        "_groups",
        "_mark_ms",
        "_once",
        "_payloads",
        "_places",
        "_references",
        "_routed",
        "_snowflakes",
        "_stored_before",
        "_stored_payloads",
        "_windows",
    )

    def __init__(
        self,
        context: PublishContext,
        snowflakes: Snowflakes,
        payloads: Payloads,
        references: PayloadReferences,
        routed: list[RoutedMessage],
        once: PublishOnce | None = None,
    ) -> None:
        self._context = context
        self._snowflakes = snowflakes
        self._payloads = payloads
        self._references = references
        self._routed = routed
        self._stored_payloads: list[PayloadReference] = []
        self._places: list[Published] = []
        """Where each message will be or is stored, without cursors."""
        self._groups: dict[PartitionId, list[int]] = {}
        self._appends: list[_Encoded] = []
        self._windows: DedupWindows | None = None
        self._mark_ms: int | None = None
        self._once = once
        self._stored_before: list[Published] | None = None
        """The answer of the same publish when it was stored before."""

    @property
    def held_bytes(self) -> int:
        return sum(routed.message.held_bytes for routed in self._routed)

    async def prepare(self) -> None:
        """Do what takes long. Must be called once, before the publish is submitted."""
        await self._store_payloads()
        await self._encode_ahead()

    async def _store_payloads(self) -> None:
        """Store large values beside the log."""
        inline = self._context.limits.payload_inline_bytes
        large = [at for at, (message, _) in enumerate(self._routed) if message.size_bound > inline and self._is_large(message)]
        if not large:
            return
        contents = [self._routed[at].message.record.value or b"" for at in large]
        for at, reference in zip(large, await self._payloads.store(contents), strict=True):
            message, partition = self._routed[at]
            # The value is on disk, so it is not held in memory while the publish waits for room.
            stored = message._replace(record=message.record._replace(value=None), reference=reference)
            self._routed[at] = RoutedMessage(stored, partition)
            self._stored_payloads.append(reference)

    async def _encode_ahead(self) -> None:
        """Encode messages for topics with a codec in a thread, as they will be stored if nothing else changes meanwhile.

        `decide` encodes them again if another publish was faster with the same messages.
        """
        compressed = sum(message.held_bytes for message, _ in self._routed if message.live.codec is not None)
        if compressed <= _ENCODED_INLINE_BYTES:
            return
        draft = Draft(self._context.store)
        try:
            groups = self._find_places(draft, DedupWindows(self._context.dedup, draft))
        except (StillInFlight, TailraceError):
            # `decide` finds it again, or not any more.
            return
        encoded = self._context.checks.in_thread(self._encode_groups, groups)
        self._appends = await asyncio.wrap_future(encoded)
        self._groups = groups

    def _encode_groups(self, groups: dict[PartitionId, list[int]]) -> list[_Encoded]:
        return [encoded for partition, indexes in groups.items() for encoded in self._encode(partition, indexes)]

    def decide(self) -> Changes | None:
        draft = Draft(self._context.store)
        once = self._once
        if once is not None:
            self._stored_before = once.publishers.find(draft, once.numbered, len(self._routed))
            if self._stored_before is not None:
                return None
        windows = self._windows = DedupWindows(self._context.dedup, draft)
        groups = self._find_places(draft, windows)
        windows.close()
        if not groups:
            return None
        if groups != self._groups:
            self._groups = groups
            self._appends = self._encode_groups(groups)
        for encoded in self._appends:
            partition = encoded.append.partition
            offset = draft.next_offset(partition)
            draft.append(encoded.append._replace(base_offset=offset))
            if encoded.reference is not None:
                self._references.add(draft, PayloadUse(partition, offset, encoded.reference))
        self._mark_ms = self._snowflakes.due_mark()
        if self._mark_ms is not None:
            draft.put(keys.MESSAGE_ID_MARK, self._mark_ms.to_bytes(8))
        if once is not None:
            once.publishers.remember(draft, once.numbered, self._places)
        return draft.changes()

    def settled(self, receipt: CommitReceipt | None) -> list[Published]:
        self._release_payloads(is_stored=receipt is not None)
        if self._stored_before is not None:
            return self._stored_before
        if self._mark_ms is not None:
            self._snowflakes.marked(self._mark_ms)
        if self._windows is not None:
            self._windows.count()
        if receipt is None:
            return self._places
        for live, append, size, _ in self._appends:
            self._context.arrived(live, append.partition, append.records, size)
        return self._published(receipt.cursor)

    def failed(self, error: Exception) -> None:
        # If the outcome is unknown, the frame may refer to the payloads: they stay until the sweep after the next start.
        if not (isinstance(error, TailraceError) and error.outcome == "unknown"):
            self._release_payloads(is_stored=False)

    def _release_payloads(self, *, is_stored: bool) -> None:
        stored = self._stored_payloads
        if stored:
            used = {encoded.reference for encoded in self._appends} if is_stored else set()
            self._payloads.release([reference for reference in stored if reference in used])
            self._payloads.abandon([reference for reference in stored if reference not in used])

    def _is_large(self, message: PreparedMessage) -> bool:
        # The server reads its own topics without expanding payloads.
        return not message.live.is_reserved and self._payloads.is_large(message.record.value)

    def _published(self, cursor: Cursor) -> list[Published]:
        """Return the places with the cursors of the new messages, which rise by partition within a commit."""
        published = self._places.copy()
        for indexes in self._groups.values():
            for index in indexes:
                topic, partition, offset, _, message_id, is_duplicate = published[index]
                published[index] = Published(topic, partition, offset, cursor, message_id, is_duplicate)
                cursor = Cursor(cursor + 1)
        return published

    def _find_places(self, draft: Draft, windows: DedupWindows) -> dict[PartitionId, list[int]]:
        """Find where each message will be or is stored, and return the indexes of the new ones by partition."""
        places: list[Published] = []
        groups: dict[PartitionId, list[int]] = {}
        ends: dict[PartitionId, int] = {}
        for index, (message, partition) in enumerate(self._routed):
            offset = ends.get(partition)
            if offset is None:
                offset = draft.next_offset(partition)
            live, _, _, message_id, fingerprint, _, _ = message
            if fingerprint is not None:
                window = windows.of(live)
                first = window.first_of(fingerprint)
                if first is not None:
                    places.append(Published(live.topic.name, first.partition, first.offset, None, message_id, True))
                    continue
                window.remember(fingerprint, partition.number, Offset(offset))
            if live.fence is not None:
                raise live.fence.afresh()
            places.append(Published(live.topic.name, partition.number, Offset(offset), None, message_id, False))
            ends[partition] = offset + 1
            group = groups.get(partition)
            if group is None:
                groups[partition] = [index]
            else:
                group.append(index)
        self._places = places
        return groups

    def _encode(self, partition: PartitionId, indexes: list[int]) -> Iterator[_Encoded]:
        """Encode the new messages of one partition in as few batches as the topic's largest batch allows.

        A message whose value is stored beside the log has a batch of its own.
        """
        limits = self._context.limits
        live = self._routed[indexes[0]].message.live
        append_time = self._context.clock.now_ms() if live.topic.settings.timestamps == "append" else None
        records: list[Record] = []
        size = HEADER_BYTES
        for index in indexes:
            message = self._routed[index].message
            full = size + message.size_bound > live.max_batch_bytes or len(records) == limits.batch_records
            if records and (full or message.reference is not None):
                yield _encoded(live, partition, records, append_time)
                records = []
                size = HEADER_BYTES
            if message.reference is not None:
                yield _encoded_reference(live, partition, message.record, message.reference, append_time)
            else:
                records.append(message.record)
                size += message.size_bound
        if records:
            yield _encoded(live, partition, records, append_time)


def _route(prepared: list[PreparedMessage]) -> list[RoutedMessage]:
    """Give each message its partition: the one it names, that of its key, or the next one round robin."""
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
        routed.append(RoutedMessage(message, partition))
    return routed


def _encoded(live: LiveTopic, partition: PartitionId, records: list[Record], append_time: int | None) -> _Encoded:
    batch = encode_batch(records, codec=live.codec or Compression.NONE, append_time=append_time)
    oldest = min(record.timestamp for record in records) if append_time is None else append_time
    append = Append(partition, batch, len(records), read_header(batch).max_timestamp, oldest_timestamp=oldest)
    return _Encoded(live, append, len(batch))


def _encoded_reference(
    live: LiveTopic, partition: PartitionId, record: Record, reference: PayloadReference, append_time: int | None
) -> _Encoded:
    batch = encode_payload_reference(record, reference, append_time=append_time)
    timestamp = record.timestamp if append_time is None else append_time
    append = Append(partition, batch, 1, timestamp, oldest_timestamp=timestamp)
    return _Encoded(live, append, expanded_size(batch, reference), reference)
