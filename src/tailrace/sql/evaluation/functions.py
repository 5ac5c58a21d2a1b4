"""How a call of PostgreSQL's catalog is evaluated: one Python callable for each key.

What is not listed is refused. Each entry is held equal to a real PostgreSQL by the differential test.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import product
from typing import Any, NamedTuple

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.tree import Call

Function = Callable[..., Any]

MAX_TEXT_LENGTH = 10_000_000
"""The characters or bytes that a function may make of small arguments."""


class EvaluationError(AnalysisError):
    """An expression has no result for a row, or one that is not supported. It has PostgreSQL's code and wording."""


class ByCall(NamedTuple):
    """Makes the callable of one call, because it depends on the types of the arguments or the result."""

    make: Callable[[Call], Function]
    is_strict: bool = True


class TakesNulls(NamedTuple):
    """A callable that is called even if an argument is null. The result of all others is null then."""

    function: Function


Entry = Function | ByCall | TakesNulls

_CODED = re.compile(r"\[([0-9A-Z]{5})\] (.*)", re.DOTALL)
_GROUPS = {
    "int": ("int2", "int4", "int8"),
    "float": ("float4", "float8"),
    "string": ("text", "varchar", "bpchar", "name"),
    "moment": ("date", "timestamp", "timestamptz"),
    "zoned": ("timestamp", "timestamptz"),
    "json": ("json", "jsonb"),
}


def coded(function: Function) -> Function:
    """Return a function whose errors of the form `[22012] message` are raised as `EvaluationError`."""

    @wraps(function)
    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except AnalysisError:
            raise
        except Exception as error:
            found = _CODED.match(str(error))
            if found is None:
                raise
            raise EvaluationError(found[1], found[2]) from None

    return call


def expanded(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries with a key for each type of a group: `{int} + {int}` stands for nine."""
    result: dict[str, Entry] = {}
    for key, entry in entries.items():
        for one in _expansions(key):
            result.setdefault(one, entry)
    return result


def _expansions(key: str) -> Iterator[str]:
    pieces = key.replace("}", "{").split("{")
    for chosen in product(*(_GROUPS[name] for name in pieces[1::2])):
        filled = list(pieces)
        filled[1::2] = chosen
        yield "".join(filled)


def check_length(length: int) -> None:
    """Refuse to make a text or bytes of more than `MAX_TEXT_LENGTH`."""
    if length > MAX_TEXT_LENGTH:
        raise EvaluationError("54000", f"a result of more than {MAX_TEXT_LENGTH} characters is not supported")
