"""Values as text, written alike by the server and the command line: bytes, fields of CSV, names of columns, counts."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_SPECIAL = re.compile('[,"\r\n]')


def text_or_hex(data: bytes | None) -> str | None:
    """Decode UTF-8. Bytes that are not UTF-8 become `\\x` and hexadecimal digits, as in PostgreSQL."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"\\x{data.hex()}"


def csv_field(value: Any) -> str:
    """Return a field of CSV. Null is empty and an empty text is `""`, so that the two stay different."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else _json_encoder()(value).decode()
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text


@cache
def _json_encoder() -> Callable[[Any], bytes]:
    # Not above: the command line's --help imports this module and does without msgspec.
    import msgspec

    return msgspec.json.Encoder().encode


def distinct_names(names: Sequence[str]) -> list[str]:
    """Number the names that come more than once, because a JSON object has each of its names once."""
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
    """Return a number with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
