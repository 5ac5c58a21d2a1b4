"""Idempotent producers: a batch that is sent again is found by its sequence and stored once.

For each producer and partition the store keeps the epoch and the last five batches. The state is put in the same commit as the
append that it describes, and decisions are made on the latest view, so requests in flight see each other.
"""

from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commit import Change, Committer, StillInFlight
from tailrace.broker.draft import Draft
from tailrace.model.changes import Changes, Receipt
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    InvalidRequestError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerError,
)
from tailrace.model.ids import Offset, Partition, ProducerId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import BatchHeader

REMEMBERED_BATCHES = 5
"""Kafka's clients have at most this many batches of a partition in flight."""

_SEQUENCES = 1 << 31
_HEAD = Struct(">hQ")
_BATCH = Struct(">iiq")
_SCAN_KEYS = 1_000
_EVICTED_SHARE = 10


class SequencedBatch(NamedTuple):
    base_sequence: int
    records: int
    base_offset: Offset


class ProducerState(NamedTuple):
    epoch: int
    updated_ms: int
    batches: tuple[SequencedBatch, ...]
    """The newest last."""


class Producers:
    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._next_id = ProducerId(0)
        self._counts: dict[Partition, int] = {}
        """Producers of the partitions that got a new one lately. An estimate that each run of `expire` makes right again."""
        self.expired = 0
        self.evicted = 0

    def load(self) -> None:
        self._next_id = _read_id(self._store.get(keys.NEXT_PRODUCER_ID))

    async def allocate(self) -> ProducerId:
        """A producer id that nobody has had before."""
        given = ProducerId(0)

        def decide() -> Changes:
            nonlocal given
            given = _read_id(self._store.latest(keys.NEXT_PRODUCER_ID))
            return Changes(puts=((keys.NEXT_PRODUCER_ID, (given + 1).to_bytes(8)),))

        def settled(_: Receipt | None) -> ProducerId:
            self._next_id = ProducerId(max(self._next_id, given + 1))
            return given

        return await self._committer.submit(Change(decide, settled))

    def find_duplicate(self, draft: Draft, partition: Partition, header: BatchHeader) -> Offset | None:
        """The offset of the batch if it is there already; else None, once the batch is known to be the next in sequence.

        The partition's next offset must have been read into the draft before.
        """
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0 or epoch < 0 or sequence < 0:
            raise InvalidRequestError(
                f"a batch of producer {producer_id} has epoch {epoch} and sequence {sequence}; none of them is below 0"
            )
        if producer_id >= self._next_id:
            raise UnknownProducerError(f"producer id {producer_id} was not given out by this server; ask for a new one")
        key = keys.producer_key(partition, producer_id)
        value = draft.latest(key)
        if value is None:
            if sequence != 0:
                raise UnknownProducerError(
                    f"nothing is known of producer {producer_id} here, and its sequence starts at {sequence}, not 0;"
                    " ask for a new producer id"
                )
            return None
        state = decode_state(value)
        first = duplicate_of(state, header)
        if first is None:
            check_sequence(state, header)
        elif not draft.holds(key) and not self._is_settled(key, header):
            raise StillInFlight
        return first

    def remember(self, draft: Draft, partition: Partition, header: BatchHeader, base_offset: Offset) -> None:
        """Put the batch into its producer's state."""
        key = keys.producer_key(partition, header.producer_id)
        value = draft.latest(key)
        if value is None:
            self._make_room(draft, partition)
        state = decode_state(value) if value is not None else None
        draft.put(key, encode_state(advanced(state, header, base_offset, self._clock.now_ms())))

    def forget_partition(self, partition: Partition) -> None:
        self._counts.pop(partition, None)

    async def expire(self) -> int:
        """Forget producers that have been silent for too long."""
        oldest_ms = self._clock.now_ms() - self._limits.producer_idle_seconds * 1000
        start = b""
        forgotten = 0
        while True:
            found = self._store.range(keys.PRODUCERS, start, _SCAN_KEYS)
            silent = [key for key, value in found if _updated_ms(value) < oldest_ms]
            if silent:
                forgotten += await self._forget(silent, oldest_ms)
            if len(found) < _SCAN_KEYS:
                break
            start = found[-1][0][len(keys.PRODUCERS) :] + b"\0"
        self._counts.clear()
        self.expired += forgotten
        return forgotten

    async def _forget(self, silent: list[bytes], oldest_ms: int) -> int:
        gone: list[tuple[bytes, None]] = []

        def decide() -> Changes:
            gone.clear()
            for key in silent:
                value = self._store.latest(key)
                if value is not None and _updated_ms(value) < oldest_ms:
                    gone.append((key, None))
            return Changes(puts=tuple(gone))

        return await self._committer.submit(Change(decide, lambda _: len(gone)))

    def _is_settled(self, key: bytes, header: BatchHeader) -> bool:
        value = self._store.get(key)
        return value is not None and duplicate_of(decode_state(value), header) is not None

    def _make_room(self, draft: Draft, partition: Partition) -> None:
        most = self._limits.producers_per_partition
        prefix = keys.producers_of_partition(partition)
        count = self._counts.get(partition)
        if count is None:
            count = len(self._store.range(prefix, limit=most + 1))
        if count >= most:
            there = sorted(self._store.range(prefix), key=lambda pair: _updated_ms(pair[1]))
            # A share of them at once, so that the search is not made for each newcomer.
            evicted = there[: max(count + 1 - most, most // _EVICTED_SHARE)]
            for key, _ in evicted:
                draft.put(key, None)
            self.evicted += len(evicted)
            count -= len(evicted)
        self._counts[partition] = count + 1


def duplicate_of(state: ProducerState, header: BatchHeader) -> Offset | None:
    if state.epoch == header.producer_epoch:
        for base_sequence, records, base_offset in state.batches:
            if base_sequence == header.base_sequence and records == header.records:
                return base_offset
    return None


def check_sequence(state: ProducerState, header: BatchHeader) -> None:
    """Refuse a batch that is not the next one of its producer."""
    if header.producer_epoch < state.epoch:
        raise ProducerFencedError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, and epoch {state.epoch} has taken over"
        )
    if header.producer_epoch > state.epoch:
        expected = 0
    else:
        last = state.batches[-1]
        expected = (last.base_sequence + last.records) % _SEQUENCES
    if header.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id}, epoch {header.producer_epoch}: the next sequence is {expected},"
            f" the batch has {header.base_sequence}"
        )


def advanced(state: ProducerState | None, header: BatchHeader, base_offset: Offset, now_ms: int) -> ProducerState:
    batch = SequencedBatch(header.base_sequence, header.records, base_offset)
    if state is None or state.epoch != header.producer_epoch:
        return ProducerState(header.producer_epoch, now_ms, (batch,))
    return ProducerState(state.epoch, now_ms, (*state.batches[1 - REMEMBERED_BATCHES :], batch))


def encode_state(state: ProducerState) -> bytes:
    return _HEAD.pack(state.epoch, state.updated_ms) + b"".join([_BATCH.pack(*batch) for batch in state.batches])


def decode_state(value: bytes) -> ProducerState:
    epoch, updated_ms = _HEAD.unpack_from(value)
    batches = tuple(map(SequencedBatch._make, _BATCH.iter_unpack(value[_HEAD.size :])))
    return ProducerState(epoch, updated_ms, batches)


def _updated_ms(value: bytes) -> int:
    updated_ms: int = _HEAD.unpack_from(value)[1]
    return updated_ms


def _read_id(value: bytes | None) -> ProducerId:
    return ProducerId(int.from_bytes(value or b""))
