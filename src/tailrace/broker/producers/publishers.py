"""Publishers that number their publishes: one that is sent again is found by its number and answered as the first one was.

A publisher names itself and has one publish on its way at a time, so only the last one can come again. Its number and where
its messages went are put in the same commit as the messages: either all of it is there after a crash, or nothing is. Numbers
rise; one may be left out, because a publish that was refused takes none.
"""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft, StillInFlight
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import InvalidRequestError, OutOfOrderSequenceError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NumberedPublish, Published
from tailrace.store.contract import Store

# A state is the number of the last publish and its time, then its places, compressed.
_HEAD = Struct(">QQ")
_QUICKLY = 1
_SCAN_KEYS = 100
_EVICTED_SHARE = 10


class Publishers:
    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._heard_ms: OrderedDict[str, int] = OrderedDict()
        """The longest silent first."""
        self.repeated = 0
        """Messages that were sent again and found by the number of their publish."""

    def __len__(self) -> int:
        return len(self._heard_ms)

    def load(self) -> None:
        heard: dict[str, int] = {}
        start = b""
        while True:
            found = self._store.range(keys.PUBLISHERS, start, _SCAN_KEYS)
            heard.update((keys.publisher_of(key), _HEAD.unpack_from(value)[1]) for key, value in found)
            if len(found) < _SCAN_KEYS:
                break
            start = found[-1][0][len(keys.PUBLISHERS) :] + b"\0"
        self._heard_ms = OrderedDict(sorted(heard.items(), key=lambda pair: pair[1]))

    def check(self, publish: NumberedPublish) -> None:
        size = len(publish.publisher.encode())
        if not 0 < size <= self._limits.publisher_name_length:
            raise InvalidRequestError(
                f"the publisher's name has {size} bytes; 1 to {self._limits.publisher_name_length} are allowed"
                " (publisher_name_length)"
            )

    def find(self, draft: Draft, publish: NumberedPublish, messages: int) -> list[Published] | None:
        """Where the messages of this publish went, if it came before; else None, once it is known to be a new one."""
        key = keys.publisher_key(publish.publisher)
        state = draft.latest(key)
        if state != self._store.get(key):
            # Only what can't be lost any more is an answer, and nothing overtakes it.
            raise StillInFlight
        if state is None:
            return None
        last: int = _HEAD.unpack_from(state)[0]
        if publish.number > last:
            return None
        if publish.number < last:
            raise OutOfOrderSequenceError(
                f"publisher {publish.publisher!r} sent publish {publish.number} after {last}; its numbers must rise"
            )
        found = _places(state)
        if len(found) != messages:
            raise InvalidRequestError(
                f"publish {last} of publisher {publish.publisher!r} had {len(found)} messages and came again with {messages};"
                " a number names one publish"
            )
        self.repeated += len(found)
        return found

    def remember(self, draft: Draft, publish: NumberedPublish, published: Sequence[Published]) -> list[str]:
        """Put it into the publisher's state, so that it is found when it comes again. Those who are forgotten for it."""
        evicted = self._to_evict(publish.publisher)
        for name in evicted:
            draft.put(keys.publisher_key(name), None)
        head = _HEAD.pack(publish.number, self._clock.now_ms())
        draft.put(keys.publisher_key(publish.publisher), head + zlib.compress(_encode_places(published), _QUICKLY))
        return evicted

    def heard_of(self, publish: NumberedPublish, evicted: Sequence[str]) -> None:
        """Its publish is durable."""
        for name in evicted:
            self._heard_ms.pop(name, None)
        self._heard_ms[publish.publisher] = self._clock.now_ms()
        self._heard_ms.move_to_end(publish.publisher)

    async def expire(self) -> int:
        """Forget publishers that have been silent for too long."""
        oldest_ms = self._clock.now_ms() - self._limits.publisher_idle_seconds * 1000
        silent: list[str] = []

        def decide() -> Changes | None:
            silent[:] = [name for name, heard_ms in self._heard_ms.items() if heard_ms < oldest_ms]
            return Changes(puts=tuple((keys.publisher_key(name), None) for name in silent)) if silent else None

        def settled(_: CommitReceipt | None) -> int:
            for name in silent:
                self._heard_ms.pop(name, None)
            return len(silent)

        return await self._committer.submit(Change(decide, settled))

    def _to_evict(self, newcomer: str) -> list[str]:
        """Those who make room for one more. A share of them at once, so that not every newcomer costs so much."""
        most = self._limits.publishers
        if newcomer in self._heard_ms or len(self._heard_ms) < most:
            return []
        return list(self._heard_ms)[: max(1, most // _EVICTED_SHARE)]


def _encode_places(published: Sequence[Published]) -> bytes:
    topics = list(dict.fromkeys(each.topic for each in published))
    number_of = {topic: number for number, topic in enumerate(topics)}
    columns = (
        topics,
        [number_of[each.topic] for each in published],
        [each.partition for each in published],
        [each.offset for each in published],
        [each.message_id for each in published],
    )
    return msgspec.msgpack.encode(columns)


def _places(state: bytes) -> list[Published]:
    topics, numbers, partitions, offsets, message_ids = msgspec.msgpack.decode(zlib.decompress(state[_HEAD.size :]))
    return [
        Published(topics[number], partition, Offset(offset), None, message_id, True)
        for number, partition, offset, message_id in zip(numbers, partitions, offsets, message_ids, strict=True)
    ]
