"""How rows are written as CSV and as JSON by lines, by the server and by the command line alike."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

_SPECIAL = re.compile('[,"\r\n]')


def csv_field(value: Any) -> str:
    """Write a field; null is empty and an empty text is `""`, so that the two stay different."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text


def distinct_names(names: Sequence[str]) -> list[str]:
    """Number the names that come twice, because an object has each of its names once."""
    taken: set[str] = set()
    found = []
    for name in names:
        number, distinct = 1, name
        while distinct in taken:
            number += 1
            distinct = f"{name}_{number}"
        taken.add(distinct)
        found.append(distinct)
    return found


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
