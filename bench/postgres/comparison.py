"""Tables and topics beside tables of PostgreSQL: rows by their key, rows one by one and in thousands, and GROUP BY."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section, alternate
from bench.http.rates import percentile
from bench.http.server import HttpServer, load_batches, serving
from bench.peers.postgres import postgres_connection, version_of
from bench.peers.void_http import void_http
from bench.workspace import Workspace, settle_disk
from tailrace.api.sql import SqlResponse
from tailrace.client._sync.transport import Transport
from tailrace.model.record import Record
from tailrace.wire.records import encode_batch

_MANY = 1_000
_GROUPS = 100
_PARTITIONS = 4
_BATCH_RECORDS = 5_000
_KEYS = 1_009
"""Prime to the sizes, so that consecutive reads are far from each other."""
_QUERY_SECONDS = 300.0
_COPY_SECONDS = 2.0
_COPIED_A_SECOND = 50_000
"""Fewer than are copied on a busy machine."""
_TIMESTAMP = 1_700_000_000_000
_LEAST_SINGLE = 0.5
_LEAST_MANY = 0.7
_LEAST_TABLE = 2
_LEAST_TOPIC = 1
_MOST_SMALL_MS = 2
_SMALL_ROWS = 1_000
_SMALL_ANSWER = 10
_POINT = "SELECT id, k FROM bench.facts WHERE id = ?"
_SINGLE = "INSERT INTO bench.inserted (id, k, x, body) VALUES (?, ?, ?, ?)"
_GROUP_TABLE = "SELECT k, sum(x) FROM bench.facts GROUP BY k ORDER BY k"
_PROBE = "SELECT count(*) FROM bench.facts WHERE x = -1"
"""A scan of the table, which SQLite needs long for and a columnar copy not."""
_GROUP_TOPIC = "SELECT value ->> 'k', sum((value ->> 'x')::bigint) FROM bench.events GROUP BY 1 ORDER BY 1"
_PART_OF_TOPIC = """SELECT count(value ->> 'k') FROM bench.events WHERE "offset" < 50000"""
_GROUP_EVENTS = "SELECT value ->> 'k', sum((value ->> 'x')::bigint) FROM events GROUP BY 1 ORDER BY 1"


class _Side(NamedTuple):
    """How a server is asked."""

    point: Callable[[int], float]
    """Reads rows by their keys, one at a time, and returns how many a second."""
    single: Callable[[int], float]
    """Inserts rows one at a time."""
    many: Callable[[int], float]
    """Inserts thousands of rows."""
    table: Callable[[int], float]
    """Groups the table some times, and returns rows a second."""
    topic: Callable[[int], float]


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.postgres
    with workspace.folder() as folder, serving(workspace) as server, postgres_connection(folder) as connection:
        peer = version_of(connection)
        with _asking(server) as ask:
            workspace.say(f"{scale.table_rows:,} rows of a table and {scale.topic_records:,} records of a topic")
            expected = _load(server, connection, ask, scale.table_rows, scale.topic_records)
            sides = {
                "ours": _ours(ask, expected, scale.table_rows, scale.topic_records),
                "theirs": _theirs(connection, expected, scale.table_rows, scale.topic_records),
            }
            workspace.say("SELECT by key, INSERT of one row and of a thousand, beside PostgreSQL")
            with void_http(folder) as void, void_http(folder, is_synced=True) as synced_void:
                points = {name: side.point for name, side in sides.items()} | {"alone": _alone(void, _POINT, [1])}
                point = alternate(points, scale.points, scale.rounds)
                singles = {name: side.single for name, side in sides.items()} | {"alone": _alone(synced_void, _SINGLE, _row(1))}
                single = alternate(singles, scale.single_rows, scale.rounds)
            many = alternate({name: side.many for name, side in sides.items()}, scale.many_rows // _MANY, scale.rounds)
            workspace.say("a small SELECT that is not by key")
            small = alternate({"ours": lambda work: _small(ask, work)}, scale.points, scale.rounds)["ours"]
            workspace.say("GROUP BY, beside PostgreSQL")
            table = alternate({name: side.table for name, side in sides.items()}, 1, scale.rounds)
            topic = alternate({name: side.topic for name, side in sides.items()}, 1, scale.rounds)
    named = (
        ("SELECT of one row by its key", point, "statements/s", _LEAST_SINGLE),
        ("INSERT of one row", single, "rows/s", _LEAST_SINGLE),
        (f"INSERT of {_MANY:,} rows", many, "rows/s", _LEAST_MANY),
        (f"`k, sum(x) … GROUP BY k`, table of {scale.table_rows:,} rows", table, "rows/s", _LEAST_TABLE),
        (f"the same over JSON, topic of {scale.topic_records:,} records", topic, "rows/s", _LEAST_TOPIC),
    )
    return Section(
        title="SQL: beside PostgreSQL",
        text="Tailrace is asked over HTTP by the SDK, PostgreSQL with its default settings by psycopg, both over TCP; both"
        " are on the same disk and sync what they acknowledge. One client sends one statement at a time. An INSERT at Tailrace"
        f" writes a change event too. The same {scale.table_rows:,} rows of two integers and a text are grouped into {_GROUPS}"
        f" groups in both. The topic has {_PARTITIONS} partitions and values of about 100 B of JSON; PostgreSQL has the same"
        " values as `jsonb` in a table. The client alone is the SDK at a server that answers every request with one row; for"
        " INSERTs that server syncs 300 B first. Answers are compared with each other, and afterwards the rows are counted.",
        figures=[
            *(
                Figure(
                    name=name,
                    ours=found["ours"],
                    unit=unit,
                    peer=peer,
                    peers=found["theirs"],
                    bar=Bar("at least", least),
                    alone=found.get("alone"),
                )
                for name, found, unit, least in named
            ),
            Figure(
                name=f"SELECT of {_SMALL_ANSWER} of {_SMALL_ROWS:,} rows not by key, p50",
                ours=small,
                unit="ms",
                bar=Bar("at most", _MOST_SMALL_MS),
            ),
        ],
    )


Ask = Callable[..., Sequence[Sequence[Any]]]


@contextmanager
def _asking(server: HttpServer) -> Iterator[Ask]:
    """Return a function that runs a statement by the SDK's transport and returns its rows."""
    transport = Transport(server.url)

    def ask(text: str, *params: object) -> Sequence[Sequence[Any]]:
        question = {"sql": text, "params": params}
        return transport.ask("/api/sql", question, SqlResponse, wait_seconds=_QUERY_SECONDS).rows

    try:
        yield ask
    finally:
        transport.close()


class _Expected(NamedTuple):
    table: Sequence[tuple[Any, ...]]
    topic: Sequence[tuple[Any, ...]]


def _load(server: HttpServer, connection: Any, ask: Ask, rows: int, records: int) -> _Expected:
    """Write the same rows to both, wait until the columnar copy is made, and return what GROUP BY must answer."""
    for name in ("inserted", "facts"):
        ask(f"CREATE TABLE bench.{name} (id BIGINT, k INTEGER, x BIGINT, body TEXT, PRIMARY KEY (id))")
        connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, k INTEGER, x BIGINT, body TEXT)")
    ask("CREATE TABLE bench.small (id BIGINT, k INTEGER, body TEXT, PRIMARY KEY (id))")
    ask(
        "INSERT INTO bench.small (id, k, body) VALUES (?, ?, ?)",
        *([n, n % (_SMALL_ROWS // _SMALL_ANSWER), f"row {n}"] for n in range(_SMALL_ROWS)),
    )
    step = 5 * _MANY
    for first in range(0, rows, step):
        ask(
            "INSERT INTO bench.facts (id, k, x, body) VALUES (?, ?, ?, ?)",
            *([n, n % _GROUPS, n * 7 % 10_007, f"body {n}"] for n in range(first, min(rows, first + step))),
        )
    connection.execute(
        f"INSERT INTO facts SELECT n, n % {_GROUPS}, n * 7 % 10007, 'body ' || n FROM generate_series(0, {rows} - 1) n"
    )
    lines, times = _load_topic(server, records)
    connection.execute("CREATE TABLE events (value JSONB)")
    with connection.cursor().copy("COPY events FROM STDIN") as copy:
        for _ in range(times):
            copy.write(lines)
    connection.execute("VACUUM ANALYZE facts, events")
    table = [tuple(map(int, row)) for row in connection.execute("SELECT k, sum(x) FROM facts GROUP BY k ORDER BY k").fetchall()]
    topic = [(str(k), int(x)) for k, x in connection.execute(_GROUP_EVENTS).fetchall()]
    _await_copy(ask, rows)
    for _ in range(2):
        # The compiled loops that decode records are loaded once there is much to read.
        ask(_PART_OF_TOPIC)
    settle_disk()
    return _Expected(table, topic)


def _load_topic(server: HttpServer, records: int) -> tuple[bytes, int]:
    """Load the topic, and return the values that it has, one in a line, and how many times it has them."""
    values = [
        b'{"k":"group %d","x":%d,"id":"%08d","padding":"%s"}' % (n % _GROUPS, n * 7 % 10_007, n, b"p" * 40)
        for n in range(_BATCH_RECORDS)
    ]
    batch = bytes(encode_batch([Record(None, value, (), _TIMESTAMP) for value in values]))
    server.create_topic("bench.events", _PARTITIONS)
    batches = records // _BATCH_RECORDS
    load_batches(server, "bench.events", [(number % _PARTITIONS, batch, _BATCH_RECORDS) for number in range(batches)])
    return b"".join(value + b"\n" for value in values), batches


def _await_copy(ask: Ask, rows: int) -> None:
    """Wait until queries over the table take the same time again and again: the copy is made in the background."""
    times: list[float] = []
    until = time.monotonic() + _COPY_SECONDS + rows / _COPIED_A_SECOND
    while time.monotonic() < until:
        began = time.monotonic()
        ask(_PROBE)
        times.append(time.monotonic() - began)
        if len(times) > 3 and max(times[-3:]) < 0.3 * times[0]:
            return
        time.sleep(0.2)


def _ours(ask: Ask, expected: _Expected, rows: int, records: int) -> _Side:
    ids = count()

    def point(work: int) -> float:
        return _rate(work, lambda n: _check(ask(_POINT, n * _KEYS % rows), 1))

    def single(work: int) -> float:
        return _rate(work, lambda _: ask(_SINGLE, *_row(next(ids))))

    def many(work: int) -> float:
        return _MANY * _rate(work, lambda _: ask(_SINGLE, *([*_row(next(ids))] for _ in range(_MANY))))

    def table(work: int) -> float:
        return rows * _rate(work, lambda _: _equal([(int(k), int(x)) for k, x in ask(_GROUP_TABLE)], expected.table))

    def topic(work: int) -> float:
        return records * _rate(work, lambda _: _equal([(str(k), int(x)) for k, x in ask(_GROUP_TOPIC)], expected.topic))

    return _Side(point, single, many, table, topic)


def _alone(url: str, text: str, params: Sequence[object]) -> Callable[[int], float]:
    """Return how many statements a second the SDK sends to a server that does nothing."""

    def run(work: int) -> float:
        transport = Transport(url)
        try:
            return _rate(
                work, lambda _: _check(transport.ask("/api/sql", {"sql": text, "params": params}, SqlResponse).rows, 1)
            )
        finally:
            transport.close()

    return run


def _theirs(connection: Any, expected: _Expected, rows: int, records: int) -> _Side:
    ids = count()

    def ask(text: str, params: Sequence[object] = ()) -> Any:
        return connection.execute(text, params).fetchall()

    def point(work: int) -> float:
        return _rate(work, lambda n: _check(ask("SELECT id, k FROM facts WHERE id = %s", [n * _KEYS % rows]), 1))

    def single(work: int) -> float:
        text = "INSERT INTO inserted (id, k, x, body) VALUES (%s, %s, %s, %s)"
        return _rate(work, lambda _: connection.execute(text, _row(next(ids))))

    def many(work: int) -> float:
        text = f"INSERT INTO inserted (id, k, x, body) VALUES {', '.join(['(%s, %s, %s, %s)'] * _MANY)}"
        return _MANY * _rate(work, lambda _: connection.execute(text, [v for _ in range(_MANY) for v in _row(next(ids))]))

    def table(work: int) -> float:
        text = "SELECT k, sum(x) FROM facts GROUP BY k ORDER BY k"
        return rows * _rate(work, lambda _: _equal([(int(k), int(x)) for k, x in ask(text)], expected.table))

    def topic(work: int) -> float:
        return records * _rate(work, lambda _: _equal([(str(k), int(x)) for k, x in ask(_GROUP_EVENTS)], expected.topic))

    return _Side(point, single, many, table, topic)


def _small(ask: Ask, work: int) -> float:
    """Return the median time of a SELECT of a few rows by a condition that is not on the key, in milliseconds."""
    times = []
    for number in range(work):
        began = time.perf_counter()
        found = ask("SELECT id, body FROM bench.small WHERE k = ?", number % (_SMALL_ROWS // _SMALL_ANSWER))
        times.append(time.perf_counter() - began)
        _check(found, _SMALL_ANSWER)
    return percentile(times, 0.5)


def _row(number: int) -> tuple[int, int, int, str]:
    return number, number % _GROUPS, number * 7 % 10_007, f"body {number}"


def _rate(work: int, do: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for number in range(work):
        do(number)
    return work / (time.perf_counter() - began)


def _check(rows: Sequence[object], expected: int) -> None:
    if len(rows) != expected:
        raise AuditFailure(f"a SELECT gave {len(rows)} rows, and {expected} were expected")


def _equal(found: Sequence[object], expected: Sequence[object]) -> None:
    if list(found) != list(expected):
        raise AuditFailure(f"GROUP BY gave {str(found)[:200]} at one server and {str(expected)[:200]} at the other")
