"""What PostgreSQL's functions about the session return: there is one database, and `public` is the schema of names without a
namespace. The user is the principal where principals are authenticated (`with_session_user`), and always the same elsewhere."""

import re
from collections.abc import Mapping
from typing import Any

from tailrace import __version__
from tailrace.sql.analysis.tree import Constant
from tailrace.sql.analysis.types import TEXT, SqlType

DATABASE = "tailrace"
USER = "tailrace"
PUBLIC = "public"
NAME = SqlType("name")
_FUNCTIONS: Mapping[str, tuple[SqlType, str]] = {
    "version": (TEXT, f"PostgreSQL 18.0 (Tailrace {__version__})"),
    "current_database": (NAME, DATABASE),
    "current_schema": (NAME, PUBLIC),
}
_USERS = ("SVFOP_CURRENT_ROLE", "SVFOP_CURRENT_USER", "SVFOP_SESSION_USER", "SVFOP_USER")
_VALUES: Mapping[str, str] = {
    "SVFOP_CURRENT_CATALOG": DATABASE,
    "SVFOP_CURRENT_SCHEMA": PUBLIC,
    **dict.fromkeys(_USERS, USER),
}
_NODE = "SQLValueFunction"
_NAMED = "user_name"
_MENTION = re.compile(r"\b(?:current_user|session_user|current_role|user)\b", re.IGNORECASE)


def session_function(name: str, location: int) -> Constant | None:
    """Return the value of a function without arguments, such as `version()`, if it is one about the session."""
    found = _FUNCTIONS.get(name)
    return None if found is None else Constant(*found, location=location)


def session_value(fields: Mapping[str, Any], location: int) -> Constant | None:
    """Return the value of a keyword such as `CURRENT_USER`, if it is one about the session."""
    found = fields.get(_NAMED) or _VALUES.get(fields["op"])
    return None if found is None else Constant(NAME, found, location=location)


def with_session_user(tree: Mapping[str, Any], text: str, user: str) -> Mapping[str, Any]:
    """Return the parse tree of a text, in which this is the value of `CURRENT_USER`; the same tree if that is not in it."""
    found: Mapping[str, Any] = _replaced(tree, user) if _MENTION.search(text) else tree
    return found


def _replaced(node: Any, user: str) -> Any:
    if isinstance(node, dict):
        called = node.get(_NODE)
        if called is not None and called["op"] in _USERS:
            return {_NODE: {**called, _NAMED: user}}
        fields = {name: _replaced(field, user) for name, field in node.items()}
        return fields if any(fields[name] is not node[name] for name in node) else node
    if isinstance(node, list):
        items = [_replaced(item, user) for item in node]
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    return node
