"""Changes of a table that wait for their routes, and the check that each took its route once."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.audit import AuditFailure
from bench.http.client import HttpClient
from bench.http.server import HttpServer
from bench.http.tasks import InsertRows

BODY_BYTES = 180
"""With the other columns a row has 200 B as JSON."""
_ROWS_A_REQUEST = 1_000
_CONNECTIONS = 4


class RoutedTable(NamedTuple):
    """A table with routes by the remainder of its key."""

    name: str
    topics: Sequence[str]
    changes: int

    @property
    def routed(self) -> int:
        """How many records come out."""
        return (self.changes + 1) // 2 if len(self.topics) == 1 else self.changes


def condition(routes: int, number: int) -> str:
    """One route takes every other change; many share all changes among them."""
    return f"id % {max(2, routes)} = {number}"


def load_changes(server: HttpServer, name: str, routes: int, changes: int) -> RoutedTable:
    server.sql(f"CREATE TABLE {name} (id BIGINT, body TEXT, PRIMARY KEY (id))")
    topics = [f"{name}_routed_{number}" for number in range(routes)]
    for number, topic in enumerate(topics):
        server.create_topic(topic)
        where = condition(routes, number)
        server.sql(f"ALTER TOPIC {topic} ADD SOURCE {name} ON INSERT WHERE ({where}) WITH (payload = 'full')")
    return more_changes(server, RoutedTable(name, topics, 0), changes)


def more_changes(server: HttpServer, table: RoutedTable, changes: int) -> RoutedTable:
    """The table with so many rows more."""
    with HttpClient(server) as client:
        task = InsertRows(
            table=table.name,
            first_id=table.changes,
            rows=changes,
            rows_a_request=_ROWS_A_REQUEST,
            body_bytes=BODY_BYTES,
            connections=_CONNECTIONS,
        )
        client.ask(task)
    return table._replace(changes=table.changes + changes)


def check_routed(server: HttpServer, table: RoutedTable) -> None:
    """Every topic has the rows of its route, each once."""
    routes = len(table.topics)
    for number, topic in enumerate(table.topics):
        expected = range(number, table.changes, max(2, routes))
        text = f"SELECT count(*), count(DISTINCT key), sum(CAST(value ->> 'id' AS BIGINT)) FROM {topic}"
        found = [int(each) for each in server.sql(text)[0]]
        if found != [len(expected), len(expected), sum(expected)]:
            raise AuditFailure(f"{topic} has (records, keys, sum) {found}; {len(expected)} with sum {sum(expected)} were due")
