"""Routed changes become the records that `wire/routing.py` says, in the order of the changes, step by step."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import Cursor, RouteId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import MarkMove
from tailrace.model.record import Record
from tailrace.pipeline.connection import Ends, ServerConnection
from tailrace.pipeline.dead_letters import SUFFIX, TOO_LARGE, DeadLetters, name_for
from tailrace.pipeline.errors import RefusedError
from tailrace.pipeline.routed_rows import RoutedSteps, RouteTarget
from tailrace.pipeline.staging import RowEncoder
from tailrace.wire.codecs import Codec
from tailrace.wire.records import decode_batch
from tailrace.wire.routing import ChangeEvent, routed

PARTITIONS = 3
ROUTES = [
    RouteTarget(1, "all", "chat.messages", "full"),
    RouteTarget(2, "all", "chat.messages", "diff"),
    RouteTarget(3, "keys", "chat.messages", "key"),
    RouteTarget(4, "keys", "shop.orders", "key"),
]
COLUMNS = {
    "source": pa.string(),
    "op": pa.string(),
    "key": pa.binary(),
    "old_json": pa.binary(),
    "new_json": pa.binary(),
    "cursor": pa.int64(),
    "committed_ms": pa.int64(),
    "mark_from": pa.int64(),
    "mark_to": pa.int64(),
    "route": pa.int32(),
    "failed": pa.bool_(),
    "record_key": pa.string(),
}


class Topics(ServerConnection):
    """Knows how large topics are, and that those for dead letters have to be made."""

    def __init__(self, max_batch_bytes: int = 1_000_000) -> None:
        super().__init__("http://127.0.0.1:1")
        self.made: list[str] = []
        self._most = max_batch_bytes

    def offsets(self, topics: object = (), *_: object, **__: object) -> Ends:  # type: ignore[override]
        (topic,) = topics  # type: ignore[misc]
        if topic.endswith(SUFFIX):
            if topic not in self.made:
                raise RefusedError(f"no topic {topic!r}", 404, "unknown-topic")
            return Ends({topic: [0]}, {topic: 1_000_000})
        return Ends({topic: [0] * PARTITIONS}, {topic: self._most})

    def ask(self, method: str, path: str, question: object = None) -> object:
        assert (method, path) == ("POST", "/api/topics")
        self.made.append(question["name"])  # type: ignore[index]
        return None


@pytest.fixture(scope="module")
def topics() -> Topics:
    return Topics()


@pytest.fixture(scope="module")
def encoder(topics: Topics) -> RowEncoder:
    return RowEncoder(topics, Codec.NONE, 0)


@pytest.fixture
def letters(topics: Topics) -> DeadLetters:
    topics.made.clear()
    return DeadLetters(topics)


def row(**given: object) -> dict[str, object]:
    return dict.fromkeys(COLUMNS) | {"source": "5/0", "route": -1, "failed": False} | given


def hit(cursor: int, route: int, *, failed: bool = False, record_key: str | None = None) -> dict[str, object]:
    return row(
        op="update",
        key=b'{"id":%d}' % (cursor % 4),
        old_json=b'{"id":%d,"n":1}' % (cursor % 4),
        new_json=b'{"id":%d,"n":null}' % (cursor % 4),
        cursor=cursor,
        committed_ms=1_700_000_000_000 + cursor,
        route=route,
        failed=failed,
        record_key=record_key,
    )


def mark(start: int, end: int) -> dict[str, object]:
    return row(mark_from=start, mark_to=end)


def batches(rows: list[dict[str, object]], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), size):
        piece = rows[first : first + size]
        yield pa.RecordBatch.from_pydict({name: [each[name] for each in piece] for name in COLUMNS}, pa.schema(COLUMNS))


def staged(
    steps: RoutedSteps, rows: list[dict[str, object]], size: int
) -> list[tuple[MarkMove, dict[tuple[str, int], list[Record]]]]:
    found = []
    for step in steps.of(batches(rows, size)):
        records: dict[tuple[str, int], list[Record]] = {}
        for topic, partition, batch in step.batches:
            decoded = [record._replace(offset=-1) for record in decode_batch(batch, DEFAULT_LIMITS)]
            records.setdefault((topic, partition), []).extend(decoded)
        (move,) = step.moves
        found.append((move, records))
    return found


def expected(hits: list[dict[str, object]]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for each in hits:
        target = next(target for target in ROUTES if target.id == each["route"])
        change = ChangeEvent(
            each["op"],
            each["key"],
            each["old_json"],
            each["new_json"],
            each["committed_ms"],
            Cursor(each["cursor"]),  # type: ignore[arg-type]
        )
        made = routed(change, route=RouteId(target.id), table=target.table, payload=target.payload, partitions=PARTITIONS)
        record = Record(made.key, made.value, list(made.headers), change.timestamp)
        found.setdefault((target.topic, made.partition), []).append(record)
    return found


def plain(records: dict[tuple[str, int], list[Record]]) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    return {
        place: [(record.key, record.value, list(record.headers), record.timestamp) for record in each]
        for place, each in records.items()
    }


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=8), min_size=1, max_size=5), st.integers(1, 12))
def test_steps_hold_what_the_routes_make_of_their_changes(
    encoder: RowEncoder, topics: Topics, routes: list[list[int]], size: int
) -> None:
    rows: list[dict[str, object]] = []
    wanted = []
    cursor = 0
    for step, taken in enumerate(routes):
        hits = [hit(cursor := cursor + 1, route) for route in taken]
        rows += [*hits, mark(step, step + 1)]
        wanted.append((MarkMove("5/0", step, step + 1), plain(expected(hits))))
    steps = RoutedSteps(encoder, DeadLetters(topics), ROUTES)
    assert [(move, plain(records)) for move, records in staged(steps, rows, size)] == wanted
    assert steps.changes == len(routes)


def test_keys_of_partition_by_are_the_records_keys(encoder: RowEncoder, letters: DeadLetters) -> None:
    ((_, records),) = staged(RoutedSteps(encoder, letters, ROUTES), [hit(1, 1, record_key="[42]"), hit(2, 1), mark(0, 2)], 10)
    assert sorted(record.key or b"" for each in records.values() for record in each) == [b"[42]", b'{"id":2}']


def test_changes_that_a_route_fails_on_go_to_dead_letters_with_the_rest(
    encoder: RowEncoder, letters: DeadLetters, topics: Topics
) -> None:
    steps = RoutedSteps(encoder, letters, ROUTES)
    ((_, records),) = staged(steps, [hit(1, 1), hit(2, 1, failed=True), hit(3, 3), mark(0, 3)], 10)
    dead = [record for (topic, _), each in records.items() if topic == "all.dead_letters" for record in each]
    assert len(dead) == steps.dead_letters == 1
    assert topics.made == ["all.dead_letters"]
    assert b'"route":1' in (dead[0].value or b"")
    assert b'"event":{"op":"update","key":{"id":2},"old":{"id":2,"n":1},"new":{"id":2,"n":null}' in (dead[0].value or b"")
    assert sum(len(each) for each in records.values()) == 3


def test_a_change_that_is_too_large_for_its_topic_becomes_a_dead_letter_in_its_place() -> None:
    topics = Topics(max_batch_bytes=4_000)
    steps = RoutedSteps(RowEncoder(topics, Codec.NONE, 0), DeadLetters(topics), ROUTES)
    large = hit(2, 1) | {"new_json": b'{"id":2,"n":"%b"}' % (b"x" * 3_000)}
    ((_, records),) = staged(steps, [hit(1, 1, failed=True), large, hit(3, 1), hit(4, 1, failed=True), mark(0, 4)], 10)
    dead = records.pop(("all.dead_letters", 0))
    assert [dict(record.headers)["cursor"] for record in dead] == [b"1", b"2", b"4"]
    assert TOO_LARGE.encode() in (dead[1].value or b"")
    assert [dict(record.headers)["cursor"] for each in records.values() for record in each] == [b"3"]


def test_a_letter_that_is_too_large_says_where_the_change_is() -> None:
    topics = Topics(max_batch_bytes=4_000)
    topics.made.append("all.dead_letters")
    steps = RoutedSteps(RowEncoder(topics, Codec.NONE, 0), DeadLetters(topics), ROUTES)
    large = hit(2, 1) | {"new_json": b'{"id":2,"n":"%b"}' % (b"x" * 2_000_000)}
    ((_, records),) = staged(steps, [large, mark(0, 1)], 10)
    ((dead,),) = records.values()
    assert b'"event":null' in (dead.value or b"")
    assert dict(dead.headers)["cursor"] == b"2"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("chat.all", "chat.all.dead_letters"), ("x" * 240, "dead_letters"), (".".join("x" * 16), "dead_letters")],
)
def test_every_topic_has_a_place_for_dead_letters(topic: str, expected: str) -> None:
    assert name_for(topic) == expected
