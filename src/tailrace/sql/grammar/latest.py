"""`LATEST(topic)` in FROM: the newest record of each key of a topic, without keys whose newest record has no value.

It stands for a query of the topic, which takes its place in the tree of PostgreSQL's parser. So it has the columns of a topic,
may stand wherever a query may, and conditions around it choose from the newest records, not among all.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pgparse

_FUNCTION = "latest"
_PLACEHOLDER = "topic"
_TEXT = """
SELECT "partition", "offset", cursor, "timestamp", key, value, headers, source_table, op, payload_mode, message_id
FROM topic
WHERE cursor IN (SELECT max(cursor) FROM topic WHERE key_bytes IS NOT NULL GROUP BY key_bytes) AND value IS NOT NULL
"""
"""Reads the topic twice, both times as it was at the start of the query. So only keys are held in memory, and no values."""


def with_latest(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of a statement with queries in the place of `LATEST(...)`."""
    found: Mapping[str, Any] = _replaced(tree)
    return found


def _replaced(node: Any) -> Any:
    """Return the node; the same object if nothing in it was replaced."""
    if isinstance(node, dict):
        topic = _topic_of(node.get("RangeFunction"))
        if topic is not None:
            return {"RangeSubselect": _query_of(topic, node["RangeFunction"].get("alias"))}
        fields = {name: _replaced(field) for name, field in node.items()}
        return fields if any(fields[name] is not node[name] for name in node) else node
    if isinstance(node, list):
        items = [_replaced(item) for item in node]
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    return node


def _topic_of(function: Mapping[str, Any] | None) -> list[tuple[str, int]] | None:
    """Return the parts of the topic's name, each with its place, if the function is LATEST with the name of a topic."""
    if function is None or len(function["functions"]) != 1:
        return None
    call = function["functions"][0]["List"]["items"][0].get("FuncCall")
    if call is None or [part["String"]["sval"] for part in call["funcname"]] != [_FUNCTION] or len(call.get("args", ())) != 1:
        return None
    argument = call["args"][0]
    column, constant = argument.get("ColumnRef"), argument.get("A_Const")
    if column is not None and all("String" in part for part in column["fields"]):
        location = column.get("location", 0)
        return [(part["String"]["sval"], location) for part in column["fields"]]
    if constant is not None and "sval" in constant:
        return [(constant["sval"]["sval"], constant.get("location", 0))]
    return None


def _query_of(topic: list[tuple[str, int]], alias: Mapping[str, Any] | None) -> Mapping[str, Any]:
    query = deepcopy(_query())
    # One part, however many the name has: names of relations are joined before they are looked up.
    _complete(query, ".".join(part for part, _ in topic), topic[0][1])
    return {"subquery": query, "alias": alias or {"aliasname": _FUNCTION}}


@cache
def _query() -> dict[str, Any]:
    tree: dict[str, Any] = pgparse.parse(_TEXT)[0]["stmt"]
    return tree


def _complete(node: Any, topic: str, location: int) -> None:
    """Fill in the name of the topic, and let errors point to it."""
    if isinstance(node, dict):
        if node.get("relname") == _PLACEHOLDER:
            node["relname"] = topic
        if "location" in node:
            node["location"] = location
        for field in node.values():
            _complete(field, topic, location)
    elif isinstance(node, list):
        for item in node:
            _complete(item, topic, location)
