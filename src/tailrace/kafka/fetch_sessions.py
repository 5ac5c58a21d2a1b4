"""Fetch sessions (KIP-227): a consumer sends its partitions once, and after that only changes.

A session belongs to the client that knows its number and sends the next epoch. Sessions are bounded in number and in
partitions. At the bound a session that has been idle for two minutes is evicted; if there is none, the new client gets no
session, which every client supports.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.model.clock import Clock
from tailrace.model.errors import FetchSessionEpochError, FetchSessionTopicIdError, UnknownFetchSessionError
from tailrace.model.limits import Limits
from tailrace.wire.fast_fetch import FetchedPartition
from tailrace.wire.messages.fetch import FetchRequest

NO_SESSION = 0
_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1
_IDLE_SECONDS = 120.0
_UNSEEN = -1

PartitionKey = tuple[str, UUID, int]
"""The topic by name or by id, and the partition."""


class WantedPartition:
    """The position of a consumer in a partition, and the offsets that it was sent last."""

    __slots__ = ("high_watermark", "key", "leader_epoch", "log_start_offset", "max_bytes", "offset", "topic_uuid")

    def __init__(self, key: PartitionKey, offset: int, max_bytes: int, leader_epoch: int) -> None:
        self.key = key
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.high_watermark = _UNSEEN
        self.log_start_offset = _UNSEEN
        self.topic_uuid: UUID | None = None
        """The topic that was read last, if the client asks by name."""

    def is_same(self, topic_uuid: UUID) -> bool:
        """Return false, once, if the topic was created again since this session read it."""
        before, self.topic_uuid = self.topic_uuid, topic_uuid
        return before in (None, topic_uuid)


class FetchSession:
    def __init__(self, number: int, by_id: bool, now: float) -> None:
        self.number = number
        self.by_id = by_id
        self.epoch = _FIRST_EPOCH
        self.partitions: dict[PartitionKey, WantedPartition] = {}
        self.used_at = now

    def update(self, fetched: Sequence[tuple[WantedPartition, FetchedPartition]]) -> Iterator[int]:
        """Yield the indexes of the partitions to include in the response. Those with records move to the end of the order."""
        for place, (wanted, partition) in enumerate(fetched):
            has_changed = bool(
                partition.batches
                or partition.error_code
                or partition.high_watermark != wanted.high_watermark
                or partition.log_start_offset != wanted.log_start_offset
            )
            if partition.error_code:
                wanted.high_watermark = wanted.log_start_offset = _UNSEEN
            else:
                wanted.high_watermark = partition.high_watermark
                wanted.log_start_offset = partition.log_start_offset
            if partition.batches and self.partitions.pop(wanted.key, None) is not None:
                self.partitions[wanted.key] = wanted
            if has_changed:
                yield place


class SessionFetch(NamedTuple):
    """The partitions of one fetch, and its session, if any."""

    wanted: Sequence[WantedPartition]
    session: FetchSession | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.number if self.session is not None else NO_SESSION


class FetchSessions:
    def __init__(self, clock: Clock, limits: Limits, new_number: Callable[[], int]) -> None:
        self._clock = clock
        self._limits = limits
        self._new_number = new_number
        self._sessions: dict[int, FetchSession] = {}
        """The least recently used one comes first."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Return the number of partitions in all sessions."""
        return self._partitions

    def begin(self, request: FetchRequest, by_id: bool) -> SessionFetch:
        """Find or create the session of a request and apply the changes of the request."""
        epoch = request.session_epoch
        if epoch in (_FIRST_EPOCH, _FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._remove(request.session_id)
            wanted = list(_named_in(request))
            session = self._create(wanted, by_id) if epoch == _FIRST_EPOCH else None
            return SessionFetch(wanted, session, False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise UnknownFetchSessionError(f"unknown fetch session {request.session_id}; start a new one")
        if epoch != session.epoch:
            raise FetchSessionEpochError(
                f"fetch session {session.number} is at epoch {session.epoch}, not {epoch}; start a new one"
            )
        if by_id != session.by_id:
            raise FetchSessionTopicIdError(
                f"fetch session {session.number} names topics by {'id' if session.by_id else 'name'}; start a new one"
            )
        self._update(session, request)
        self._use(session)
        return SessionFetch(tuple(session.partitions.values()), session, True)

    def _create(self, wanted: Sequence[WantedPartition], by_id: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        limits = self._limits
        while self._sessions and (
            len(self._sessions) >= limits.fetch_sessions or self._partitions + len(wanted) > limits.fetch_session_partitions
        ):
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < _IDLE_SECONDS:
                return None
            self._remove(oldest.number)
        if len(wanted) > limits.fetch_session_partitions:
            return None
        number = self._new_number()
        while number in self._sessions or number == NO_SESSION:
            number = self._new_number()
        session = FetchSession(number, by_id, now)
        session.partitions = {partition.key: partition for partition in wanted}
        self._sessions[number] = session
        self._partitions += len(session.partitions)
        self._use(session)
        return session

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.partitions)
        for new in _named_in(request):
            known = session.partitions.get(new.key)
            if known is None:
                session.partitions[new.key] = new
            else:
                known.offset, known.max_bytes, known.leader_epoch = new.offset, new.max_bytes, new.leader_epoch
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, number), None)
        self._partitions += len(session.partitions) - before
        if self._partitions > self._limits.fetch_session_partitions:
            self._remove(session.number)
            raise UnknownFetchSessionError(
                f"fetch sessions have more than {self._limits.fetch_session_partitions} partitions; start a new one"
            )

    def _use(self, session: FetchSession) -> None:
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.used_at = self._clock.monotonic()
        self._sessions[session.number] = self._sessions.pop(session.number)

    def _remove(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._partitions -= len(session.partitions)


def _named_in(request: FetchRequest) -> Iterable[WantedPartition]:
    return (
        WantedPartition(
            (topic.topic, topic.topic_id, partition.partition),
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    )
