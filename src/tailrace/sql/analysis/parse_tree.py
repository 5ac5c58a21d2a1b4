"""PostgreSQL's parse tree, as its parser returns it."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]
"""A node: its fields under the name of its kind, or its fields."""
SYSTEM_SCHEMAS = ("pg_catalog", "public")
"""The schemas that may stand before the name of a function or type."""


def location_of(fields: Node) -> int:
    """Return the place of a node in the text."""
    location = fields.get("location", 0)
    return location if isinstance(location, int) else -1
