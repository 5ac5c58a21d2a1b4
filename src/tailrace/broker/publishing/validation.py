"""Checks batches and messages from outside before they are stored. An error names the limit that was exceeded.

`RecordChecks` reads the records inside batches: inline where that is fast, else in threads. Uncompressed batches are scanned by
compiled code in about 10 ns a record (`wire/machine_code.py`). Decompression takes milliseconds, and the size of a batch says
little about how many: that is done in threads, without the interpreter's lock.
"""

import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import msgspec

from tailrace.broker.publishing.dedup import fingerprint_of_content, fingerprint_of_id
from tailrace.broker.topics.registry import LiveTopic, TopicRegistry
from tailrace.model.commit import Buffer
from tailrace.model.errors import (
    InvalidRecordsError,
    InvalidRequestError,
    InvalidTimestampError,
    LimitExceededError,
    MessageTooLargeError,
    ReservedTopicError,
    StoreClosedError,
)
from tailrace.model.ids import PartitionId
from tailrace.model.limits import KIB, Limits
from tailrace.model.names import is_reserved
from tailrace.model.record import MESSAGE_ID_HEADER, Headers, Message, Record
from tailrace.model.topic import DedupMode
from tailrace.wire.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    NO_PRODUCER,
    REFERENCE_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_batch,
    read_header,
    with_max_timestamp,
    with_records,
)
from tailrace.wire.compression import check_codec, compress
from tailrace.wire.fast_record_check import compile_scan, load_scan
from tailrace.wire.record_check import ScanRecords, TimestampSpan, check_records, plain_scan
from tailrace.wire.records import decode_batch, decompressed_records

_INLINE_BYTES = 4 * KIB
_INLINE_DECOMPRESSED_BYTES = 64 * KIB
_INLINE_PLAIN_RECORDS = 500
"""As many as the Python scan checks in about a millisecond."""
_MANY_PLAIN_RECORDS = 2_000
"""After so many it is worth compiling the scan."""

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


class CheckedBatch(msgspec.Struct, frozen=True):
    """A batch that may be stored."""

    live: LiveTopic
    partition: PartitionId
    batch: Buffer
    header: BatchHeader
    oldest_timestamp: int
    """No record is before it."""
    records: "Sequence[tuple[Record, bytes | None]] | None"
    """Its records and their fingerprints if the topic has deduplication."""


class ReadBatch(msgspec.Struct, frozen=True):
    """A batch whose header is checked, and whose records are not yet."""

    live: LiveTopic
    partition: PartitionId
    batch: Buffer
    header: BatchHeader


def read_batch_for(live: LiveTopic, number: int, batch: Buffer, limits: Limits, *, to_reserved: bool = False) -> ReadBatch:
    """Check the header of a batch for a partition of the topic. Only with `to_reserved` may that be a reserved one."""
    if live.is_reserved and not to_reserved:
        raise reserved_topic_error(live.topic.name)
    partition = live.partition(number)
    header = check_batch(batch)
    _check_raw_batch(header, len(batch), live, limits)
    return ReadBatch(live, partition, batch, header)


def checked_batch(read: ReadBatch, timestamps: TimestampSpan, now_ms: int, limits: Limits) -> CheckedBatch:
    """Complete the check of a batch whose records are valid and have these timestamps."""
    live, batch, header = read.live, read.batch, read.header
    oldest, newest = timestamps
    if newest > now_ms + limits.timestamp_ahead_ms:
        raise _too_far_ahead(newest, now_ms, limits)
    if newest != header.max_timestamp:
        # As in Kafka: searches by time use the header, and the records are what counts.
        batch = with_max_timestamp(batch, newest)
        header = read_header(batch)
    if newest < 0:
        # The records have no timestamps; retention and the index use the current time.
        header = msgspec.structs.replace(header, max_timestamp=now_ms)
    records = None
    dedup = live.topic.settings.dedup
    # Records of a transaction may be aborted and sent again, so they are exempt from deduplication.
    if dedup is not None and not header.is_transactional:
        records = _fingerprinted(decode_batch(batch, limits), dedup)
    return CheckedBatch(live, read.partition, batch, header, oldest, records)


def needs_recompression(read: ReadBatch) -> bool:
    """Return whether the topic stores batches with another codec than that of this one."""
    codec = read.live.codec
    return codec is not None and codec != read.header.codec


def recompressed(read: ReadBatch, limits: Limits) -> ReadBatch:
    """Return the batch with the codec of its topic. Takes long; may be called from any thread. Its records must be checked."""
    live, header, codec = read.live, read.header, read.live.codec
    if codec is None or codec == header.codec:
        return read
    records = compress(codec, decompressed_records(read.batch, header, limits))
    size = HEADER_BYTES + len(records)
    if size > live.max_batch_bytes:
        raise MessageTooLargeError(
            f"the batch has {size} bytes with the compression of topic {live.topic.name!r}, more than it takes"
            f" ({_batch_limit(live, limits)}); send smaller batches"
        )
    batch = with_records(read.batch, (records,), (header.attributes & ~CODEC_MASK) | codec)
    return msgspec.structs.replace(read, batch=batch, header=read_header(batch))


def check_message(message: Message, now_ms: int, limits: Limits) -> None:
    """Check the limits of a message."""
    if message.value is not None and len(message.value) > limits.payload_bytes:
        raise MessageTooLargeError(
            f"the payload has {len(message.value)} bytes, more than payload_bytes allows ({limits.payload_bytes});"
            " send less, or raise the limit in the server's configuration file"
        )
    if message.key is not None and len(message.key) > limits.key_bytes:
        raise LimitExceededError(f"the key has {len(message.key)} bytes, more than key_bytes allows ({limits.key_bytes})")
    if message.headers:
        _check_headers(message.headers, limits)
    timestamp = message.timestamp
    if timestamp is not None:
        if timestamp < 0:
            raise InvalidTimestampError(f"the timestamp is {timestamp}; it counts milliseconds since 1970")
        if timestamp > now_ms + limits.timestamp_ahead_ms:
            raise _too_far_ahead(timestamp, now_ms, limits)


def check_key(key: bytes | None, live: LiveTopic) -> None:
    """Raise `InvalidRecordsError` for a record without a key if the topic is compacted."""
    if key is None and live.needs_keys:
        raise InvalidRecordsError(
            f"the record has no key; topic {live.topic.name!r} is compacted and takes only records with keys"
        )


def message_id_of(message: Message, limits: Limits) -> bytes | None:
    """Return the id that the sender gave to the message, as a field or as a header."""
    named = None
    for name, value in message.headers:
        if name == MESSAGE_ID_HEADER:
            named = value
    given = message.message_id
    if given is None:
        found = named
    else:
        found = given.encode()
        if named is not None and named != found:
            raise InvalidRequestError(
                f"the message has the id {given!r} and a different one in its header {MESSAGE_ID_HEADER}; leave one of them out"
            )
    if found is None:
        return None
    if not 0 < len(found) <= limits.message_id_bytes:
        raise LimitExceededError(
            f"the message id has {len(found)} bytes; it must have from 1 to message_id_bytes ({limits.message_id_bytes})"
        )
    return found


def check_batch_size(size: int, live: LiveTopic, limits: Limits) -> None:
    """Raise `MessageTooLargeError` for a record that exceeds the topic's batch limit even alone."""
    if size > live.max_batch_bytes:
        raise MessageTooLargeError(
            f"the record has {size} bytes with its key and headers, more than topic {live.topic.name!r} takes"
            f" ({_batch_limit(live, limits)})"
        )


def raise_unknown_topic(topics: TopicRegistry, name: str) -> LiveTopic:
    """Raise for a topic that does not exist. Producers retry on an unknown topic, but not on a reserved_topic_error name."""
    if is_reserved(name):
        raise reserved_topic_error(name)
    return topics.get(name)


def reserved_topic_error(name: str) -> ReservedTopicError:
    return ReservedTopicError(f"{name!r} is a reserved topic and can't be written to; write to its table, or to another topic")


def _check_raw_batch(header: BatchHeader, size: int, live: LiveTopic, limits: Limits) -> None:
    if size > live.max_batch_bytes:
        raise MessageTooLargeError(
            f"the batch has {size} bytes, more than topic {live.topic.name!r} takes ({_batch_limit(live, limits)})"
        )
    if header.records > limits.batch_records:
        raise _too_many_records(header, "batch_records", limits.batch_records)
    if live.topic.settings.dedup is not None and header.records > limits.dedup_batch_records:
        raise _too_many_records(header, "dedup_batch_records", limits.dedup_batch_records)
    if header.attributes:
        _check_attributes(header)


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CONTROL_MASK:
        raise InvalidRecordsError("control batches are written by the server only")
    if attributes & TRANSACTIONAL_MASK and header.producer_id == NO_PRODUCER:
        raise InvalidRequestError("the batch is transactional and has no producer id")
    if attributes & REFERENCE_MASK:
        raise InvalidRecordsError("the batch has the attribute of a payload reference, which only the server may set")
    if attributes & TIMESTAMP_TYPE_MASK:
        raise InvalidTimestampError("the batch has the timestamp type LogAppendTime, which only the server may set")
    check_codec(attributes & CODEC_MASK)


def _check_headers(headers: Headers, limits: Limits) -> None:
    if len(headers) > limits.headers:
        raise LimitExceededError(f"the message has {len(headers)} headers, more than headers allows ({limits.headers})")
    for name, value in headers:
        if len(name.encode()) > limits.header_bytes or (value is not None and len(value) > limits.header_bytes):
            raise LimitExceededError(
                f"the header {name[:64]!r} is larger than header_bytes allows ({limits.header_bytes}), in its name or its value"
            )


def _too_far_ahead(timestamp: int, now_ms: int, limits: Limits) -> InvalidTimestampError:
    return InvalidTimestampError(
        f"the timestamp {timestamp} is {timestamp - now_ms} ms ahead of the server's clock, more than timestamp_ahead_ms"
        f" allows ({limits.timestamp_ahead_ms})"
    )


def _too_many_records(header: BatchHeader, limit: str, allowed: int) -> MessageTooLargeError:
    # With this error Java producers split the batch and try again.
    return MessageTooLargeError(
        f"the batch has {header.records} records, more than {limit} allows ({allowed}); send smaller batches"
    )


def _batch_limit(live: LiveTopic, limits: Limits) -> str:
    own = live.topic.settings.max_message_bytes
    return f"max_message_bytes {own}" if own is not None else f"batch_bytes {limits.batch_bytes}"


def _fingerprinted(records: Sequence[Record], by: DedupMode) -> list[tuple[Record, bytes | None]]:
    if by == "content":
        return [(record, fingerprint_of_content(record.key, record.value)) for record in records]
    return [(record, _fingerprint_by_header(record)) for record in records]


def _fingerprint_by_header(record: Record) -> bytes | None:
    for name, value in record.headers:
        if name == MESSAGE_ID_HEADER and value:
            return fingerprint_of_id(value)
    return None


class RecordChecks:
    """Checks the records inside batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        compiled = load_scan()
        self._scan: ScanRecords = compiled or plain_scan
        self._is_compiled = compiled is not None
        self._plain_records = 0
        self._lock = threading.Lock()
        self._compiler: threading.Thread | None = None
        self._threads = ThreadPoolExecutor(limits.check_threads, "tailrace-checker")

    def check_inline(self, batch: Buffer, header: BatchHeader, *, needs_keys: bool = False) -> TimestampSpan | None:
        """Check the records and return their timestamps, or None if the check should run in a thread."""
        if not header.attributes & CODEC_MASK:
            if self._is_compiled:
                return check_records(batch, header, 0, self._scan, needs_keys=needs_keys)
            return self._check(batch, header, 0, needs_keys) if header.records <= _INLINE_PLAIN_RECORDS else None
        if len(batch) > _INLINE_BYTES or not (self._is_compiled or header.records <= _INLINE_PLAIN_RECORDS):
            return None
        try:
            most_bytes = min(_INLINE_DECOMPRESSED_BYTES, self._limits.decompressed_batch_bytes)
            return self._check(batch, header, most_bytes, needs_keys)
        except MessageTooLargeError:
            return None

    def check(self, batch: Buffer, header: BatchHeader, *, needs_keys: bool = False) -> TimestampSpan:
        """Check the records and return their timestamps. May be called from any thread."""
        return self._check(batch, header, self._limits.decompressed_batch_bytes, needs_keys)

    def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a call in one of the check threads."""
        try:
            return self._threads.submit(call, *args, **kwargs)
        except RuntimeError:
            raise StoreClosedError("the broker is closing; send the records again after its restart") from None

    def close(self) -> None:
        """Return when all calls are done. What they were for is rejected by the closed store."""
        self._threads.shutdown(wait=True)

    def _check(self, batch: Buffer, header: BatchHeader, most_bytes: int, needs_keys: bool) -> TimestampSpan:
        if not self._is_compiled:
            self._count_plain(header.records)
        return check_records(batch, header, most_bytes, self._scan, needs_keys=needs_keys)

    def _count_plain(self, records: int) -> None:
        with self._lock:
            self._plain_records += records
            if self._compiler is None and self._plain_records >= _MANY_PLAIN_RECORDS:
                self._compiler = threading.Thread(target=self._compile, name="tailrace-compiler", daemon=True)
                self._compiler.start()

    def _compile(self) -> None:
        try:
            self._scan = compile_scan()
            self._is_compiled = True
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("records of producers are checked without compiled code, which is many times slower: %s", error)
