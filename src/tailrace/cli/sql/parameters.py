"""Parameters of SQL on the command line: `-p 42` for a `?`, `-p id=42` for `:id`.

A value that is JSON is taken as what JSON says, everything else as text. `-p '"42"'` is a text of two digits.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tailrace.cli.failures import UsageError

_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def read_parameters(given: Sequence[str]) -> list[Any] | dict[str, Any]:
    named = [_NAMED.fullmatch(text) for text in given]
    if not any(named):
        return [_value(text) for text in given]
    found: dict[str, Any] = {}
    for text, match in zip(given, named, strict=True):
        if match is None:
            raise UsageError(f"-p {text!r} has no name and others have; give all parameters a name, or none")
        if match[1] in found:
            raise UsageError(f"-p {match[1]} is there twice")
        found[match[1]] = _value(match[2])
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
