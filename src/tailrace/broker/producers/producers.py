"""Idempotent producers: a batch that is sent again is found by its sequence number and stored once.

For each producer and partition the store keeps the epoch and the last five batches. The state is put in the same commit as the
append that it describes, and decisions are made on the latest view, so requests in flight see each other.
"""

from struct import Struct

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft, StillInFlight
from tailrace.broker.producers.idle_states import IdleStates
from tailrace.broker.security.permissions import Permissions
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import (
    InvalidRecordsError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerError,
)
from tailrace.model.ids import Offset, PartitionId, ProducerId
from tailrace.model.limits import Limits
from tailrace.model.transaction import ProducerDescription, ProducerIdentity
from tailrace.store.contract import Store
from tailrace.wire.batch import BatchHeader

REMEMBERED_BATCHES = 5
"""Kafka clients have at most this many batches of a partition in flight."""

_SEQUENCES = 1 << 31

# A state is the epoch and the time of the last append, then base sequence, records and base offset of each remembered batch,
# the newest last.
_HEAD = Struct(">hQ")
_BATCH = Struct(">iiq")
_EPOCH_BYTES = 2


class Producers:
    """Allocates producer ids, and remembers the last batches of each producer."""

    def __init__(self, store: Store, committer: Committer, permissions: Permissions, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._permissions = permissions
        self._clock = clock
        self._next_id = ProducerId(0)
        self.duplicates = 0
        """Records of duplicate batches."""
        self.states = IdleStates(
            store,
            committer,
            clock,
            keys.PRODUCERS,
            _updated_ms,
            limits.producer_idle_seconds,
            limits.producers_per_partition,
        )

    def load(self) -> None:
        self._next_id = _read_id(self._store.get(keys.NEXT_PRODUCER_ID))

    async def allocate(self) -> ProducerId:
        """Return a new producer id.

        As in Kafka, that needs `publish` on any topic, or `idempotent_write` on the cluster.
        """
        self._permissions.require_publish_somewhere()
        producer_id = ProducerId(0)

        def decide() -> Changes:
            nonlocal producer_id
            draft = Draft(self._store)
            producer_id = self.allocate_in(draft)
            return draft.changes()

        def settled(_: CommitReceipt | None) -> ProducerId:
            self.allocated(producer_id)
            return producer_id

        return await self._committer.submit(Change(decide, settled))

    def allocate_in(self, draft: Draft) -> ProducerId:
        """Return a new producer id as part of a draft. Call `allocated` when the draft is durable."""
        producer_id = _read_id(draft.latest(keys.NEXT_PRODUCER_ID))
        draft.put(keys.NEXT_PRODUCER_ID, (producer_id + 1).to_bytes(8))
        return producer_id

    def allocated(self, producer_id: ProducerId) -> None:
        """Record that a producer id is allocated durably."""
        self._next_id = ProducerId(max(self._next_id, producer_id + 1))

    def find_duplicate(self, draft: Draft, partition: PartitionId, header: BatchHeader) -> Offset | None:
        """Return the offset of the batch if it is stored already, or None if it is the next in its sequence.

        The partition's next offset must have been read into the draft before.
        """
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0 or epoch < 0 or sequence < 0:
            raise InvalidRecordsError(
                f"a batch has producer id {producer_id}, epoch {epoch} and sequence {sequence}; none of them may be negative"
            )
        if producer_id >= self._next_id:
            raise UnknownProducerError(f"producer id {producer_id} was not allocated by this server; request a new one")
        key = keys.producer_key(partition, producer_id)
        state = draft.latest(key)
        if state is None:
            if sequence != 0:
                raise UnknownProducerError(
                    f"producer {producer_id} is unknown in this partition, and its first sequence is {sequence}, not 0;"
                    " request a new producer id"
                )
            return None
        first = find_in_sequence(header, state)
        if first is not None and not draft.holds(key) and not self.has_stored(partition, header):
            # A batch in flight may still fail. Only a settled one may be reported as stored.
            raise StillInFlight
        if first is not None:
            self.duplicates += header.records
        return first

    def has_stored(self, partition: PartitionId, header: BatchHeader) -> bool:
        """Return whether the batch is settled, whatever becomes of the commits in flight."""
        if header.producer_id < 0:
            return False
        state = self._store.get(keys.producer_key(partition, header.producer_id))
        return state is not None and _find_batch(header, state) is not None

    def remember(self, draft: Draft, partition: PartitionId, header: BatchHeader, base_offset: Offset) -> None:
        """Put the batch into its producer's state, so that it is found when it is sent again."""
        key = keys.producer_key(partition, header.producer_id)
        state = draft.latest(key)
        if state is None:
            self.states.make_room(draft, keys.producers_of_partition(partition))
        draft.put(key, advance(header, state, base_offset, self._clock.now_ms()))

    def forget_partition(self, partition: PartitionId) -> None:
        self.states.forget_scope(keys.producers_of_partition(partition))


def find_in_sequence(header: BatchHeader, state: bytes) -> Offset | None:
    """Return the offset of the batch if it is remembered, or None if it is the next one. Raises if it is neither."""
    epoch: int = _HEAD.unpack_from(state)[0]
    if header.producer_epoch < epoch:
        raise ProducerFencedError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, and a newer one has epoch {epoch}"
        )
    if header.producer_epoch > epoch:
        expected = 0
    else:
        base_sequence, records, _ = _BATCH.unpack_from(state, len(state) - _BATCH.size)
        expected = (base_sequence + records) % _SEQUENCES
    if header.base_sequence == expected:
        return None
    first = _find_batch(header, state)
    if first is None:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id}, epoch {header.producer_epoch}: the next sequence is {expected},"
            f" the batch has {header.base_sequence}"
        )
    return first


def advance(header: BatchHeader, state: bytes | None, base_offset: Offset, now_ms: int) -> bytes:
    """Return the producer's state with this batch as its newest."""
    batch = _BATCH.pack(header.base_sequence, header.records, base_offset)
    head = _HEAD.pack(header.producer_epoch, now_ms)
    if state is None or state[:_EPOCH_BYTES] != head[:_EPOCH_BYTES]:
        return head + batch
    return head + state[_HEAD.size :][-(REMEMBERED_BATCHES - 1) * _BATCH.size :] + batch


def describe_producer(producer_id: ProducerId, state: bytes, transaction_start: Offset) -> ProducerDescription:
    epoch, updated_ms = _HEAD.unpack_from(state)
    base_sequence, records, _ = _BATCH.unpack_from(state, len(state) - _BATCH.size)
    last_sequence = (base_sequence + records - 1) % _SEQUENCES
    return ProducerDescription(ProducerIdentity(producer_id, epoch), last_sequence, updated_ms, transaction_start)


def _find_batch(header: BatchHeader, state: bytes) -> Offset | None:
    if _HEAD.unpack_from(state)[0] == header.producer_epoch:
        for base_sequence, records, base_offset in _BATCH.iter_unpack(state[_HEAD.size :]):
            if base_sequence == header.base_sequence and records == header.records:
                return Offset(base_offset)
    return None


def _updated_ms(value: bytes) -> int:
    updated_ms: int = _HEAD.unpack_from(value)[1]
    return updated_ms


def _read_id(value: bytes | None) -> ProducerId:
    return ProducerId(int.from_bytes(value or b""))
