"""Routed changes become the records that `wire/routing.py` says, in the order of the changes, step by step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.api.topics import CreateTopicBody
from tailrace.model.errors import UnknownTopicError
from tailrace.model.ids import Cursor, Offset, RouteId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import MarkMove
from tailrace.model.queue import DEAD_LETTERS, dead_letter_topic
from tailrace.model.record import Record
from tailrace.pipeline.connection import ServerAddress, ServerConnection, TopicOffsets
from tailrace.pipeline.plan import FAILED, MATCHED, OPERATIONS, RouteBits
from tailrace.pipeline.routed_records import RouteTarget
from tailrace.pipeline.routed_steps import RoutedSteps, RouterDeadLetters
from tailrace.pipeline.staging import RecordEncoder
from tailrace.pipeline.steps import CHANGES, ChangeStep, write_step
from tailrace.wire.compression import Compression
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import decode_batch
from tailrace.wire.route_dead_letters import TOO_LARGE
from tailrace.wire.routing import ChangeEvent, route_change

PARTITIONS = 3
ALL, KEYS = TopicId(11), TopicId(12)
ROUTES = [
    RouteTarget(1, ALL, "all", "chat.messages", "full", RouteBits("word_0", 0, "key_0")),
    RouteTarget(2, ALL, "all", "chat.messages", "diff", RouteBits("word_0", 2, None)),
    RouteTarget(3, KEYS, "keys", "chat.messages", "key", RouteBits("word_1", 0, None)),
    RouteTarget(4, KEYS, "keys", "shop.orders", "key", RouteBits("word_1", 4, None)),
]
MAX_KEY_BYTES = 100
SAID = pa.schema({"word_0": pa.int64(), "word_1": pa.int64(), "key_0": pa.string(), "step": pa.binary()})


class Topics(ServerConnection):
    """Knows how large topics are, and that those for dead letters have to be made."""

    def __init__(self, max_batch_bytes: int = 1_000_000, max_value_bytes: int = 900_000) -> None:
        super().__init__(ServerAddress("http://127.0.0.1:1"))
        self.made: list[str] = []
        self.ids = {"all": ALL, "keys": KEYS}
        self._most = max_batch_bytes
        self._most_value = max_value_bytes

    def offsets(self, topics: Sequence[str] = (), *_: object, **__: object) -> TopicOffsets:  # type: ignore[override]
        (topic,) = topics
        if topic.endswith(f".{DEAD_LETTERS}"):
            if topic not in self.made:
                raise UnknownTopicError(f"no topic {topic!r}")
            return TopicOffsets({topic: [0]}, {topic: 99}, {topic: 1_000_000}, {}, MAX_KEY_BYTES, self._most_value)
        if topic not in self.ids:
            raise UnknownTopicError(f"no topic {topic!r}")
        partitions = [0] * PARTITIONS
        return TopicOffsets(
            {topic: partitions}, {topic: self.ids[topic]}, {topic: self._most}, {}, MAX_KEY_BYTES, self._most_value
        )

    def ask(self, path: str, body: object, response_type: object) -> Any:
        assert path == "/api/topics"
        assert isinstance(body, CreateTopicBody)
        self.made.append(body.name)


@pytest.fixture(scope="module")
def topics() -> Topics:
    return Topics()


@pytest.fixture(scope="module")
def encoder(topics: Topics) -> RecordEncoder:
    return RecordEncoder(topics, Compression.NONE, 0)


@pytest.fixture
def letters(topics: Topics) -> RouterDeadLetters:
    topics.made.clear()
    return RouterDeadLetters(topics)


class Judged(NamedTuple):
    """A change, and what the routes have said about it."""

    change: ChangeEvent
    said: dict[int, int]
    record_key: str | None = None


def judged(cursor: int, said: dict[int, int], *, record_key: str | None = None, body: bytes = b"null") -> Judged:
    key = b'{"id":%d}' % (cursor % 4)
    old, new = b'{"id":%d,"n":1}' % (cursor % 4), b'{"id":%d,"n":%b}' % (cursor % 4, body)
    return Judged(ChangeEvent("update", key, old, new, 1_700_000_000_000 + cursor, Cursor(cursor)), said, record_key)


def rows_of(steps: list[list[Judged]], moves: list[MarkMove]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for step, move in zip(steps, moves, strict=True):
        for each in step:
            words = {"word_0": 0, "word_1": 0}
            for target in ROUTES:
                words[target.bits.word] |= each.said.get(target.id, 0) << target.bits.shift
            rows.append({**words, "key_0": each.record_key, "step": None})
        changes = [each.change for each in step]
        columns = [
            [OPERATIONS.index(change.op) for change in changes],
            *([getattr(change, name) for change in changes] for name in ("key", "old", "new", "cursor", "timestamp")),
            [(move.before or 0) + place for place in range(len(changes))],
        ]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, CHANGES.types, strict=True)], schema=CHANGES
        )
        carried = write_step(ChangeStep(move, batch)).to_pybytes()
        rows.append({"word_0": 0, "word_1": 0, "key_0": None, "step": carried})
    return rows


def staged(
    steps: RoutedSteps, given: list[list[Judged]], size: int = 10, moves: list[MarkMove] | None = None
) -> list[tuple[MarkMove, dict[tuple[str, int], list[Record]]]]:
    found = []
    rows = rows_of(given, moves or [MarkMove("5/0", number, number + 1) for number in range(len(given))])
    pieces = (pa.RecordBatch.from_pylist(rows[first : first + size], SAID) for first in range(0, len(rows), size))
    for step in steps.route(pieces):
        records: dict[tuple[str, int], list[Record]] = {}
        for each in step.batches:
            decoded = [record._replace(offset=Offset(-1)) for record in decode_batch(each.batch, DEFAULT_LIMITS)]
            records.setdefault((each.topic, each.partition), []).extend(decoded)
        found.append((step.move, records))
    return found


def expected(step: list[Judged]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for change, said, _ in step:
        for target in ROUTES:
            if said.get(target.id) == MATCHED:
                route = RouteId(target.id)
                made = route_change(change, route=route, table=target.table, payload=target.payload, partitions=PARTITIONS)
                record = Record(made.key, made.value, list(made.headers), change.timestamp)
                found.setdefault((target.topic, made.partition), []).append(record)
    return found


def plain(records: dict[tuple[str, int], list[Record]]) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    return {
        place: [(record.key, record.value, list(record.headers), record.timestamp) for record in each]
        for place, each in records.items()
    }


@given(
    st.lists(st.lists(st.sets(st.sampled_from([2, 3, 4])), max_size=8), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(1, 20),
)
def test_steps_hold_what_the_routes_make_of_their_changes(
    encoder: RecordEncoder, topics: Topics, routes: list[list[set[int]]], size: int, most_rows: int
) -> None:
    cursor = 0
    given = [[judged(cursor := cursor + 1, dict.fromkeys(taken, MATCHED)) for taken in step] for step in routes]
    steps = RoutedSteps(encoder, RouterDeadLetters(topics), ROUTES, max_rows=most_rows)
    at = 0
    for move, records in staged(steps, given, size):
        before, at = at, move.after
        assert (move.source, move.before) == ("5/0", before)
        assert plain(records) == plain(expected([change for step in given[before:at] for change in step]))
        assert at == before + 1 or sum(map(len, records.values())) <= most_rows
    assert steps.changes == at == len(routes)


def test_steps_are_one_as_long_as_their_records_are_few(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    none, one, two, failed = (judged(1, said) for said in ({}, {3: MATCHED}, {2: MATCHED, 3: MATCHED}, {2: FAILED, 4: MATCHED}))
    given = [[one, one], [two], [none], [failed, failed], [], [one], [two, two, two], [one]]
    steps = RoutedSteps(encoder, letters, ROUTES, max_rows=5)
    assert [(move.before, move.after) for move, _ in staged(steps, given)] == [(0, 3), (3, 6), (6, 7), (7, 8)]


def test_steps_are_one_as_long_as_their_records_are_small(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    change = judged(1, {3: MATCHED, 4: MATCHED})
    size = 2 * sum(len(image or b"") for image in (change.change.key, change.change.old, change.change.new))
    steps = RoutedSteps(encoder, letters, ROUTES, max_bytes=2 * size)
    assert [(move.before, move.after) for move, _ in staged(steps, [[change]] * 5)] == [(0, 2), (2, 4), (4, 5)]


def test_only_steps_that_follow_upon_each_other_become_one(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    change = judged(1, {3: MATCHED})
    moves = [MarkMove("5/0", 3, 4), MarkMove("5/0", 4, 6), MarkMove("5/0", 7, 8), MarkMove("6/0", 8, 9)]
    found = staged(RoutedSteps(encoder, letters, ROUTES), [[change]] * len(moves), moves=moves)
    assert [move for move, _ in found] == [MarkMove("5/0", 3, 6), *moves[2:]]


def test_keys_of_partition_by_are_the_records_keys(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    given = [[judged(1, {1: MATCHED, 2: MATCHED}, record_key="[42]"), judged(2, {2: MATCHED})]]
    ((_, records),) = staged(RoutedSteps(encoder, letters, ROUTES), given)
    assert sorted(record.key or b"" for each in records.values() for record in each) == [b"[42]", b'{"id":1}', b'{"id":2}']


def test_changes_that_a_route_fails_on_go_to_dead_letters_with_the_rest(
    encoder: RecordEncoder, letters: RouterDeadLetters, topics: Topics
) -> None:
    steps = RoutedSteps(encoder, letters, ROUTES)
    given = [[judged(1, {2: MATCHED}), judged(2, {1: FAILED, 3: MATCHED}), judged(3, {3: MATCHED})]]
    ((_, records),) = staged(steps, given)
    dead = [record for (topic, _), each in records.items() if topic == "all.dead_letters" for record in each]
    assert len(dead) == steps.dead_letters == 1
    assert topics.made == ["all.dead_letters"]
    assert b'"route":1' in (dead[0].value or b"")
    assert b'"event":{"op":"update","key":{"id":2},"old":{"id":2,"n":1},"new":{"id":2,"n":null}' in (dead[0].value or b"")
    assert sum(len(each) for each in records.values()) == 4


def test_a_change_that_is_too_large_for_its_topic_becomes_a_dead_letter_in_its_place() -> None:
    topics = Topics(max_batch_bytes=4_000)
    steps = RoutedSteps(RecordEncoder(topics, Compression.NONE, 0), RouterDeadLetters(topics), ROUTES)
    large = judged(2, {2: MATCHED}, body=b'"%b"' % (b"x" * 3_000))
    given = [[judged(1, {1: FAILED}), large, judged(3, {2: MATCHED}), judged(4, {1: FAILED})]]
    ((_, records),) = staged(steps, given)
    dead = records.pop(("all.dead_letters", 0))
    assert [dict(record.headers)["cursor"] for record in dead] == [b"1", b"2", b"4"]
    assert TOO_LARGE.encode() in (dead[1].value or b"")
    assert [dict(record.headers)["cursor"] for each in records.values() for record in each] == [b"3"]


def test_a_letter_that_is_too_large_says_where_the_change_is() -> None:
    topics = Topics(max_batch_bytes=4_000)
    topics.made.append("all.dead_letters")
    steps = RoutedSteps(RecordEncoder(topics, Compression.NONE, 0), RouterDeadLetters(topics), ROUTES)
    ((_, records),) = staged(steps, [[judged(2, {2: MATCHED}, body=b'"%b"' % (b"x" * 2_000_000))]])
    ((dead,),) = records.values()
    assert b'"event":null' in (dead.value or b"")
    assert dict(dead.headers)["cursor"] == b"2"


def in_order(steps: RoutedSteps, given: list[list[Judged]]) -> list[tuple[str, bytes]]:
    """Topic and cursor of the change of each record, in the order in which the commit has them."""
    rows = rows_of(given, [MarkMove("5/0", number, number + 1) for number in range(len(given))])
    return [
        (each.topic, dict(record.headers)["cursor"] or b"")
        for step in steps.route(iter([pa.RecordBatch.from_pylist(rows, SAID)]))
        for each in step.batches
        for record in decode_batch(each.batch, DEFAULT_LIMITS)
    ]


def test_a_row_that_moves_between_partitions_stays_in_order(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    """All are of one row; their keys take them to the last partition, to the first and back."""
    keys = sorted((f"[{number}]" for number in range(30)), key=lambda key: partition_for_key(key.encode(), PARTITIONS))
    first, last = keys[0], keys[-1]
    given = [[judged(4 * (at + 1), {1: MATCHED}, record_key=key) for at, key in enumerate([last, first, last])]]
    assert in_order(RoutedSteps(encoder, letters, ROUTES), given) == [("all", b"4"), ("all", b"8"), ("all", b"12")]


def test_a_row_stays_in_order_over_topics_and_dead_letters(encoder: RecordEncoder, letters: RouterDeadLetters) -> None:
    said: list[dict[int, int]] = [{3: MATCHED}, {2: MATCHED}, {2: FAILED}, {3: MATCHED}, {2: MATCHED, 3: MATCHED}]
    given = [[judged(4 * (at + 1), each) for at, each in enumerate(said)]]
    *before, first, second = in_order(RoutedSteps(encoder, letters, ROUTES), given)
    assert before == [("keys", b"4"), ("all", b"8"), ("all.dead_letters", b"12"), ("keys", b"16")]
    # What is made of one change has no order of its own.
    assert {first, second} == {("all", b"20"), ("keys", b"20")}


def test_a_step_of_too_many_batches_is_several_that_follow_upon_each_other(
    encoder: RecordEncoder, letters: RouterDeadLetters
) -> None:
    """One row goes from partition to partition, and each of its changes takes a batch."""
    changes = [judged(4 * (at + 1), {1: MATCHED}, record_key=f"[{at}]") for at in range(100)]
    changes.append(judged(500, {2: FAILED}))
    steps = RoutedSteps(encoder, letters, ROUTES, max_batches=10)
    found = list(steps.route(iter([pa.RecordBatch.from_pylist(rows_of([changes], [MarkMove("5/0", 7, 200)]), SAID)])))
    assert len(found) > 5
    assert [step.move.before for step in found[1:]] == [step.move.after for step in found[:-1]]
    assert (found[0].move.before, found[-1].move.after) == (7, 200)
    assert max(len(step.batches) for step in found) <= 10
    cursors = [
        int(dict(record.headers)["cursor"] or b"")
        for step in found
        for each in step.batches
        for record in decode_batch(each.batch, DEFAULT_LIMITS)
    ]
    assert cursors == [*range(4, 404, 4), 500]
    # Each change is in the step that moves the mark over it.
    assert [step.records for step in found] == [step.move.after - (step.move.before or 0) for step in found[:-1]] + [
        108 - (found[-1].move.before or 0)
    ]
    assert (steps.changes, steps.dead_letters) == (193, 1)


def test_nothing_is_made_for_a_topic_that_is_gone_or_another_one_by_now() -> None:
    topics = Topics()
    topics.ids = {"keys": TopicId(99)}
    steps = RoutedSteps(RecordEncoder(topics, Compression.NONE, 0), RouterDeadLetters(topics), ROUTES)
    ((move, records),) = staged(steps, [[judged(1, {2: MATCHED, 3: MATCHED}), judged(2, {1: FAILED, 4: FAILED})]])
    assert (move.after, records, topics.made) == (1, {}, [])


def test_values_over_payload_bytes_and_keys_over_key_bytes_become_dead_letters() -> None:
    topics = Topics(max_value_bytes=2_000)
    topics.made.append("all.dead_letters")
    steps = RoutedSteps(RecordEncoder(topics, Compression.NONE, 0), RouterDeadLetters(topics), ROUTES)
    long_key = "[" + "1" * MAX_KEY_BYTES + "]"
    largest = judged(4, {1: MATCHED}, record_key="[1]", body=b'"%b"' % (b"x" * (2_000 - len(b'{"id":0,"n":""}'))))
    given = [
        judged(1, {1: MATCHED}, record_key="[1]", body=b'"%b"' % (b"x" * 2_000)),
        judged(2, {1: MATCHED}, record_key=long_key),
        judged(3, {1: MATCHED}, record_key=long_key, body=b'"%b"' % (b"x" * 2_000)),
        largest,
    ]
    ((_, records),) = staged(steps, [given])
    dead = [(dict(record.headers)["cursor"], record.value or b"") for record in records.pop(("all.dead_letters", 0))]
    assert [cursor for cursor, _ in dead] == [b"1", b"2", b"3"]
    wanted = [b"payload_bytes allows (2000)", b"key_bytes allows (100)", b"payload_bytes allows (2000)"]
    assert [cause in value for cause, (_, value) in zip(wanted, dead, strict=True)] == [True] * 3
    ((stored,),) = records.values()
    assert (dict(stored.headers)["cursor"], len(stored.value or b"")) == (b"4", 2_000)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("chat.all", "chat.all.dead_letters"), ("x" * 240, "dead_letters"), (".".join("x" * 16), "dead_letters")],
)
def test_every_topic_has_a_place_for_dead_letters(topic: str, expected: str) -> None:
    assert dead_letter_topic(topic) == expected
