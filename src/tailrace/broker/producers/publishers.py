"""Publishers that number their publishes: a publish that is sent again is found by its number and answered like the first one.

A publisher names itself and has one publish in flight at a time, so only the last one can be sent again. Its number and where
its messages went are put in the same commit as the messages: after a crash either all of it is there, or nothing. Numbers rise
and may have gaps, because a rejected publish uses none.
"""

import zlib
from collections.abc import Sequence
from struct import Struct

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, StillInFlight
from tailrace.broker.producers.idle_states import IdleStates
from tailrace.model.clock import Clock
from tailrace.model.errors import InvalidRequestError, OutOfOrderSequenceError
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NumberedPublish, Published
from tailrace.store.contract import Store

# A state is the number of the last publish and its time, then the compressed places of its messages.
_HEAD = Struct(">QQ")
_FAST_COMPRESSION = 1


class Publishers:
    """Remembers the last publish of each publisher."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self.states = IdleStates(
            store, committer, clock, keys.PUBLISHERS, _updated_ms, limits.publisher_idle_seconds, limits.publishers
        )

    def check(self, publish: NumberedPublish) -> None:
        """Raise `InvalidRequestError` if the publisher's name is empty or too long."""
        size = len(publish.publisher.encode())
        if not 0 < size <= self._limits.publisher_name_length:
            raise InvalidRequestError(
                f"the publisher's name has {size} bytes; 1 to {self._limits.publisher_name_length} are allowed"
                " (publisher_name_length)"
            )

    def find(self, draft: Draft, publish: NumberedPublish, messages: int) -> list[Published] | None:
        """Return where the messages went if this publish was stored before, or None if it is a new one."""
        key = keys.publisher_key(publish.publisher)
        state = draft.latest(key)
        if state != self._store.get(key):
            # Only a settled publish may be reported as stored, and the next one must not overtake it.
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
        found = _decode_places(state)
        if len(found) != messages:
            raise InvalidRequestError(
                f"publish {last} of publisher {publish.publisher!r} had {len(found)} messages and came again with {messages};"
                " a number names one publish"
            )
        return found

    def remember(self, draft: Draft, publish: NumberedPublish, published: Sequence[Published]) -> None:
        """Put the publish into its publisher's state, so that it is found when it is sent again."""
        key = keys.publisher_key(publish.publisher)
        if draft.latest(key) is None:
            self.states.make_room(draft, keys.PUBLISHERS)
        head = _HEAD.pack(publish.number, self._clock.now_ms())
        draft.put(key, head + zlib.compress(_encode_places(published), _FAST_COMPRESSION))


def _updated_ms(state: bytes) -> int:
    updated_ms: int = _HEAD.unpack_from(state)[1]
    return updated_ms


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


def _decode_places(state: bytes) -> list[Published]:
    topics, numbers, partitions, offsets, message_ids = msgspec.msgpack.decode(zlib.decompress(state[_HEAD.size :]))
    return [
        Published(topics[number], partition, Offset(offset), None, message_id, True)
        for number, partition, offset, message_id in zip(numbers, partitions, offsets, message_ids, strict=True)
    ]
