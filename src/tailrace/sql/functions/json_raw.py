"""Parts of values of the type json, which keeps its text: they are cut from it as they are written there."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from tailrace.sql.analysis.json_documents import JsonError, index_of, read_document, too_deep

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def raw_at(text: str, steps: Sequence[str | None]) -> str | None:
    """Return the text of a part of a json. The steps are those of `json_functions.py`."""
    raw = text.encode().strip()
    for step in steps:
        try:
            found = None if step is None else _at(raw, step[0], step[1:])
        except RecursionError:
            raise too_deep() from None
        if found is None:
            return None
        raw = bytes(found).strip()
    return raw.decode()


def raw_text_at(text: str, steps: Sequence[str | None]) -> str | None:
    """Return a part of a json as a text: that of a string is the string itself, that of null is `None`."""
    found = raw_at(text, steps)
    if found is None or found == "null":
        return None
    unquoted: str = read_document(found) if found.startswith('"') else found
    return unquoted


def _at(raw: bytes, kind: str, name: str) -> msgspec.Raw | None:
    if raw.startswith(b"{") and kind != "#":
        return _FIELDS.decode(raw).get(name)
    if raw.startswith(b"[") and kind != ".":
        index = int(name) if kind == "#" else index_of(name)
        items = _ITEMS.decode(raw)
        return items[index] if index is not None and -len(items) <= index < len(items) else None
    return None


def is_json(text: str, kind: str, unique: bool) -> bool:
    """Return whether a text is JSON of this kind: `any`, `scalar`, `array` or `object`, without equal keys if wanted."""
    try:
        document = (_UNIQUE if unique else _ANY).decode(text.strip(" \t\n\r"))
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        return False
    match kind:
        case "object":
            return isinstance(document, dict)
        case "array":
            return isinstance(document, list)
        case "scalar":
            return not isinstance(document, dict | list)
    return True


def checked(text: str) -> str:
    """Return a text that is JSON. Raises `JsonError` if it is none."""
    if not is_json(text, "any", False):
        raise JsonError("22P02", "invalid input syntax for type json")
    return text


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


_ANY = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_UNIQUE = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse, object_pairs_hook=_distinct)
