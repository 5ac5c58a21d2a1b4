"""Values inside of JSON: `->`, `->>`, `#>`, `#>>` and what is cast from them, at DuckDB's own speed where that is exact.

A chain such as `value -> 'a' ->> 'b'` is read as one path. DuckDB extracts strings, integers and booleans exactly. It prints
other numbers anew and knows nothing of PostgreSQL's form of objects and arrays, so those go to Python, as does everything
inside of a record's text that DuckDB might read otherwise than PostgreSQL: a key that occurs twice, a trailing comma, `NaN`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.analysis.types import SqlType

_NATIVE_KEY = re.compile(r"[\w .:@-]+")
"""Keys that stand in a path of DuckDB without further ado, and in a text of JSON in one form but for `\\u` escapes."""


_TWICE = '%"{0}"%"{0}"%'


class RecordJson(str):
    """The text of an expression that is a record's text as JSON. `source` is the text itself.

    `fields` are the texts of columns that have fields of it, by their keys, for rows in which `doubtful` is false. `integers`
    are those of columns that have some of these fields as integers, and null where a field is not one.
    """

    __slots__ = ("doubtful", "fields", "integers", "source")
    source: str
    fields: Mapping[str, str]
    integers: Mapping[str, str]
    doubtful: str

    @classmethod
    def of(
        cls,
        source: str,
        fields: Mapping[str, str] = MappingProxyType({}),
        integers: Mapping[str, str] = MappingProxyType({}),
        doubtful: str = "",
    ) -> "RecordJson":
        made = cls(f"record_json({source})")
        made.source, made.fields, made.integers, made.doubtful = source, fields, integers, doubtful
        return made


class JsonPath(str):
    """The text of an expression that extracts a value from JSON, with what it was made of."""

    __slots__ = ("base", "is_text", "steps")
    base: str
    steps: tuple[str, ...]
    is_text: bool

    @classmethod
    def of(cls, base: str, steps: tuple[str, ...], *, is_text: bool) -> "JsonPath":
        general = _extracted(base, steps, is_text=is_text)
        field = _field(base, steps) if is_text else None
        # DuckDB copies nothing where one branch takes all rows.
        made = cls(general if field is None else f"(CASE WHEN {field.doubtful} THEN {general} ELSE {field.text} END)")
        made.base, made.steps, made.is_text = base, steps, is_text
        return made

    def cast_to(self, target: SqlType, general: str) -> str:
        """Return the text of a cast of this value to a number, which tries DuckDB's own functions before `general`."""
        native = _native_path(self.steps)
        if native is None or target.name not in _NATIVE_CASTS:
            return general
        field = _field(self.base, self.steps) if self.is_text else None
        if field is not None:
            plain = f"{_NATIVE_CASTS[target.name]}({field.text})"
            is_other = f"{field.doubtful} OR {field.text} IS NOT NULL"
            cast = f"coalesce({plain}, CASE WHEN {is_other} THEN {general} END)"
            if field.integer is None or target.name not in INTEGER_CASTS:
                return cast
            integer = INTEGER_CASTS[target.name].format(field.integer)
            return f"(CASE WHEN {integer} IS NULL THEN {cast} ELSE {integer} END)"
        source, checks = _source(self.base, self.steps)
        value = f"try(json_extract_string({source}, {native}))"
        if not self.is_text:
            # The text of a string has quotes, so only numbers are read as such.
            value = f"CAST(try(json_extract({source}, {native})) AS VARCHAR)"
        macro = _NATIVE_CASTS[target.name]
        plain = f"{macro}({value})"
        doubtful = f" OR {checks}" if checks else ""
        return f"(CASE WHEN {plain} IS NULL{doubtful} THEN {general} ELSE {plain} END)"


class _RecordField(NamedTuple):
    """A column that has a field of a record's text where `doubtful` is false, and null elsewhere."""

    text: str
    integer: str | None
    doubtful: str


def _field(base: str, steps: tuple[str, ...]) -> _RecordField | None:
    if not isinstance(base, RecordJson) or len(steps) != 1 or steps[0][0] != ".":
        return None
    key = steps[0][1:]
    text = base.fields.get(key)
    return None if text is None else _RecordField(text, base.integers.get(key), base.doubtful)


def is_native_key(key: str) -> bool:
    """Return whether DuckDB finds a key in JSON by this name."""
    return _NATIVE_KEY.fullmatch(key) is not None


INTEGER_CASTS = {"int2": "TRY_CAST({} AS SMALLINT)", "int4": "TRY_CAST({} AS INTEGER)", "int8": "{}"}
"""How a column of integers is cast to the types that a field may be cast to."""
_NATIVE_CASTS = {
    "int2": "plain_int2",
    "int4": "plain_int4",
    "int8": "plain_int8",
    "float8": "plain_float8",
}


def _step(*, is_text: bool, kind: str) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        base = arguments[0]
        step = call.arguments[1]
        if not isinstance(step, Constant) or step.value is None:
            given = f"['{kind}' || CAST({arguments[1]} AS VARCHAR)]"
            return _called(base, given, is_text=is_text)
        return _joined(base, (f"{kind}{step.value}",), is_text=is_text)

    return render


def _path(*, is_text: bool) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        base = arguments[0]
        path = call.arguments[1]
        if not isinstance(path, Constant) or not isinstance(path.value, list) or None in path.value:
            return _called(base, f"list_transform({arguments[1]}, lambda item: '/' || item)", is_text=is_text)
        return _joined(base, tuple(f"/{step}" for step in path.value), is_text=is_text)

    return render


def _variadic_path(*, is_text: bool) -> Callable[[Sequence[str], Call], str]:
    def render(arguments: Sequence[str], call: Call) -> str:
        base, *steps = arguments
        nodes = call.arguments[1:]
        known = [node.value for node in nodes if isinstance(node, Constant) and isinstance(node.value, str)]
        if len(known) < len(nodes):
            listed = ", ".join(f"'/' || {step}" for step in steps)
            return _called(base, f"[{listed}]", is_text=is_text)
        return _joined(base, tuple(f"/{step}" for step in known), is_text=is_text)

    return render


def _joined(base: str, steps: tuple[str, ...], *, is_text: bool) -> str:
    if isinstance(base, JsonPath) and not base.is_text:
        return JsonPath.of(base.base, base.steps + steps, is_text=is_text)
    return JsonPath.of(base, steps, is_text=is_text)


def _called(base: str, steps: str, *, is_text: bool) -> str:
    name = "text_at" if is_text else "at"
    return f"record_{name}({base.source}, {steps})" if isinstance(base, RecordJson) else f"jsonb_{name}({base}, {steps})"


def _extracted(base: str, steps: tuple[str, ...], *, is_text: bool) -> str:
    listed = f"[{', '.join(map(_literal, steps))}]::VARCHAR[]"
    in_python = _called(base, listed, is_text=is_text)
    native = _native_path(steps)
    if native is None:
        return in_python
    source, checks = _source(base, steps)
    function = "json_extract_string" if is_text else "json_extract"
    value = f"{function}({source}, {native})"
    value = f"try({value})" if isinstance(base, RecordJson) else value
    value = value if is_text else f"CAST({value} AS VARCHAR)"
    kept = in_python
    if is_text and steps[-1][0] != "#":
        lenient = f"WHEN is_lenient_json({source}) THEN {in_python} " if checks else ""
        key = _literal(f'"{steps[-1][1:]}"')
        kept = f"CASE {lenient}WHEN is_written({source}, {key}, {value}) THEN {value} ELSE {in_python} END"
    # The value stands in the first condition, so that DuckDB computes it once.
    doubtful = f"is_doubtful_{'text' if is_text else 'json'}({value})"
    more = f" WHEN {checks} THEN {in_python}" if checks else ""
    if any(step[0] == "#" for step in steps):
        # An index has a meaning for scalars too.
        more += f" WHEN {value} IS NULL THEN {in_python}"
    return f"(CASE WHEN {doubtful} THEN {kept}{more} ELSE {value} END)"


def _source(base: str, steps: Sequence[str]) -> tuple[str, str]:
    """Return the text that is read, and the condition under which DuckDB might read it otherwise than PostgreSQL."""
    if not isinstance(base, RecordJson):
        return base, ""
    source = base.source
    keys = [step[1:] for step in steps if step[0] != "#"]
    escape = "\\u00" if all(key.isascii() for key in keys) else "\\u"
    checks = [f"contains({source}, '{escape}')"]
    # An underscore matches any character, so this may send too many to Python, never too few.
    checks += [f"{source} LIKE {_literal(_TWICE.format(key))}" for key in dict.fromkeys(keys)]
    return source, f"({' OR '.join(checks)} OR is_lenient_json({source}))"


def _native_path(steps: Sequence[str]) -> str | None:
    parts = []
    for step in steps:
        kind, name = step[0], step[1:]
        if kind == "#":
            index = int(name)
            parts.append(f"[{index}]" if index >= 0 else f"[#{index}]")
        elif not _NATIVE_KEY.fullmatch(name) or (kind == "/" and re.match(r"\s*[+-]?\d", name)):
            return None
        else:
            parts.append(f'."{name}"')
    return _literal("$" + "".join(parts)) if parts else None


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


PATHS: dict[str, Callable[[Sequence[str], Call], str]] = {
    "jsonb -> text": _step(is_text=False, kind="."),
    "jsonb ->> text": _step(is_text=True, kind="."),
    "jsonb -> int4": _step(is_text=False, kind="#"),
    "jsonb ->> int4": _step(is_text=True, kind="#"),
    "jsonb #> text[]": _path(is_text=False),
    "jsonb #>> text[]": _path(is_text=True),
    "jsonb_object_field(jsonb, text)": _step(is_text=False, kind="."),
    "jsonb_object_field_text(jsonb, text)": _step(is_text=True, kind="."),
    "jsonb_array_element(jsonb, int4)": _step(is_text=False, kind="#"),
    "jsonb_array_element_text(jsonb, int4)": _step(is_text=True, kind="#"),
    "jsonb_extract_path(jsonb, text[])": _variadic_path(is_text=False),
    "jsonb_extract_path_text(jsonb, text[])": _variadic_path(is_text=True),
}
