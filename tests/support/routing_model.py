"""What routing means, in plain Python: rows are dictionaries, conditions are functions, topics are lists."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Change(NamedTuple):
    table: str
    op: str
    key: Row
    old: Row | None
    new: Row | None

    @property
    def row(self) -> Row:
        return self.new or self.old or {}


class Route(NamedTuple):
    topic: str
    table: str
    ops: tuple[str, ...]
    payload: str
    matches: Callable[[Change], bool | None] = lambda change: True
    """Raises where the route can't be evaluated; null is no match."""
    partition_by: tuple[str, ...] = ()


class Message(NamedTuple):
    """A record as far as it follows from rows and routes."""

    key: bytes
    value: bytes
    source_table: str
    op: str
    payload_mode: str


class RoutingModel:
    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.topics: dict[str, list[Message]] = {}

    def change(self, change: Change) -> None:
        """Goes to the routes that are in force at this moment, and to no others."""
        for route in self.routes:
            if route.table == change.table and change.op in route.ops:
                try:
                    if route.matches(change) is not True:
                        continue
                    topic, message = route.topic, _message(route, change)
                except (ArithmeticError, ValueError):
                    topic, message = (
                        f"{route.topic}.dead_letters",
                        Message(to_json(change.key), b"", change.table, change.op, "full"),
                    )
                self.topics.setdefault(topic, []).append(message)


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _message(route: Route, change: Change) -> Message:
    key: object = [change.row[column] for column in route.partition_by] if route.partition_by else change.key
    payload: object = {"key": change.key, "full": change.row}.get(route.payload)
    if route.payload == "diff":
        old, new = change.old or {}, change.new or {}
        images = {
            name: {side: row[name] for side, row in (("old", old), ("new", new)) if name in row} for name in {**old, **new}
        }
        changed = {name: each for name, each in images.items() if len(each) < 2 or each["old"] != each["new"]}
        payload = {"key": change.key, "changed": changed}
    return Message(to_json(key), to_json(payload), change.table, change.op, route.payload)
