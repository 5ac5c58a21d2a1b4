"""JSON: parts, containment, changes and what is made of values of other types.

A jsonb is parsed where it is used and printed as PostgreSQL prints it. A json keeps its text, so its parts are cut from that.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from tailrace.sql.analysis.tree import Call
from tailrace.sql.analysis.types import INTEGERS, SqlType
from tailrace.sql.evaluation.functions import ByCall, Entry, EvaluationError, Function, expanded
from tailrace.sql.evaluation.json_values import dump_json, normal_json, number_text, parse_json, quoted_json, stored_order
from tailrace.sql.evaluation.output_texts import cast_printer, float4_text, float8_text

_MISSING = object()


# Parts


def _member(value: Any, name: str) -> Any:
    return value.get(name, _MISSING) if isinstance(value, dict) else _MISSING


def _item(value: Any, index: int) -> Any:
    """Return an item of an array. PostgreSQL takes a number, text or boolean for an array of one."""
    items = value if isinstance(value, list) else [value]
    return items[index] if not isinstance(value, dict) and -len(items) <= index < len(items) else _MISSING


def _at_path(value: Any, path: Sequence[str | None]) -> Any:
    for step in path:
        if isinstance(value, dict) and step is not None:
            value = _member(value, step)
        elif isinstance(value, list) and step is not None:
            index = _as_index(step)
            value = _MISSING if index is None else _item(value, index)
        else:
            return _MISSING
        if value is _MISSING:
            break
    return value


def _as_index(step: str) -> int | None:
    try:
        return int(step) if step.isascii() else None
    except ValueError:
        return None


def _as_json(value: Any) -> str | None:
    return None if value is _MISSING else dump_json(value)


def _as_text(value: Any) -> str | None:
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else dump_json(value)


def _raw_at(text: str, path: Sequence[str | int | None]) -> str | None:
    """Return the text of a part of a json, as it is written there."""
    raw: bytes | msgspec.Raw = text.encode()
    for step in path:
        try:
            if isinstance(step, int):
                items = msgspec.json.decode(raw, type=list[msgspec.Raw])
                raw = items[step]
            else:
                raw = _raw_step(raw, step)
        except (msgspec.ValidationError, IndexError, KeyError):
            return None
    return bytes(raw).decode().strip()


def _raw_step(raw: bytes | msgspec.Raw, step: str | None) -> msgspec.Raw:
    if step is None:
        raise KeyError
    if bytes(raw).lstrip()[:1] == b"[":
        index = _as_index(step)
        if index is None:
            raise KeyError
        return msgspec.json.decode(raw, type=list[msgspec.Raw])[index]
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[step]


def _raw_text(found: str | None) -> str | None:
    if found is None or found == "null":
        return None
    return parse_json(found) if found.startswith('"') else found


def _raw_field(text: str, name: str) -> str | None:
    return None if text.lstrip()[:1] != "{" else _raw_at(text, [name])


# Containment


def _contains(value: Any, part: Any, *, is_outermost: bool = True) -> bool:
    if isinstance(part, dict):
        return isinstance(value, dict) and all(
            name in value and _contains(value[name], item, is_outermost=False) for name, item in part.items()
        )
    if isinstance(part, list):
        return isinstance(value, list) and all(any(_contains(one, item, is_outermost=False) for one in value) for item in part)
    if isinstance(value, list) and is_outermost:
        # An array contains a value that is one of its items.
        return any(_equal_scalars(one, part) for one in value)
    return _equal_scalars(value, part)


def _equal_scalars(one: Any, other: Any) -> bool:
    if isinstance(one, dict | list) or isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def _has_name(value: Any, name: str | None) -> bool:
    if name is None:
        return False
    if isinstance(value, list):
        return any(isinstance(item, str) and item == name for item in value)
    return name in value if isinstance(value, dict) else isinstance(value, str) and value == name


# Changes


def _merged(a: str, b: str) -> str:
    one, other = parse_json(a), parse_json(b)
    if isinstance(one, dict) and isinstance(other, dict):
        return dump_json({**one, **other})
    return dump_json((one if isinstance(one, list) else [one]) + (other if isinstance(other, list) else [other]))


def _without_name(text: str, name: str) -> str:
    return _without_names(text, [name])


def _without_names(text: str, names: Sequence[str | None]) -> str:
    value = parse_json(text)
    if isinstance(value, dict):
        return dump_json({one: item for one, item in value.items() if one not in names})
    if isinstance(value, list):
        return dump_json([item for item in value if not (isinstance(item, str) and item in names)])
    raise EvaluationError("22023", "cannot delete from scalar")


def _without_index(text: str, index: int) -> str:
    value = parse_json(text)
    if isinstance(value, dict):
        raise EvaluationError("22023", "cannot delete from object using integer index")
    if not isinstance(value, list):
        raise EvaluationError("22023", "cannot delete from scalar")
    if -len(value) <= index < len(value):
        del value[index]
    return dump_json(value)


def _without_path(text: str, path: Sequence[str | None]) -> str:
    value = parse_json(text)
    if not isinstance(value, dict | list):
        raise EvaluationError("22023", "cannot delete path in scalar")
    return dump_json(_changed(value, path, 0, "delete", None)) if path else dump_json(value)


def _set(text: str, path: Sequence[str | None], new: str, create: bool = True) -> str:
    value = parse_json(text)
    if not isinstance(value, dict | list):
        raise EvaluationError("22023", "cannot set path in scalar")
    if not path:
        return dump_json(value)
    return dump_json(_changed(value, path, 0, "create" if create else "replace", parse_json(new)))


def _insert(text: str, path: Sequence[str | None], new: str, after: bool = False) -> str:
    value = parse_json(text)
    if not isinstance(value, dict | list):
        raise EvaluationError("22023", "cannot set path in scalar")
    if not path:
        return dump_json(value)
    return dump_json(_changed(value, path, 0, "after" if after else "before", parse_json(new)))


def _changed(value: Any, path: Sequence[str | None], level: int, how: str, new: Any) -> Any:
    """Return a value with the part at a path replaced, inserted or deleted."""
    step = path[level]
    if step is None:
        raise EvaluationError("22004", f"path element at position {level + 1} is null")
    is_last = level == len(path) - 1
    if isinstance(value, dict):
        return _changed_object(value, step, path, level, how, new) if is_last or step in value else value
    if not isinstance(value, list):
        return value
    index = _as_index(step)
    if index is None:
        raise EvaluationError("22P02", f'path element at position {level + 1} is not an integer: "{step}"')
    place = index + len(value) if index < 0 else index
    if 0 <= place < len(value):
        if not is_last:
            return [*value[:place], _changed(value[place], path, level + 1, how, new), *value[place + 1 :]]
        kept: list[Any] = {"delete": [], "before": [new, value[place]], "after": [value[place], new]}.get(how, [new])
        return [*value[:place], *kept, *value[place + 1 :]]
    if not is_last or how in ("delete", "replace"):
        return value
    return [new, *value] if place < 0 else [*value, new]


def _changed_object(
    value: dict[str, Any], step: str, path: Sequence[str | None], level: int, how: str, new: Any
) -> dict[str, Any]:
    if level < len(path) - 1:
        return {**value, step: _changed(value[step], path, level + 1, how, new)}
    if how == "delete":
        return {name: item for name, item in value.items() if name != step}
    if how in ("before", "after"):
        if step in value:
            raise EvaluationError("22023", "cannot replace existing key")
        return {**value, step: new}
    return {**value, step: new} if step in value or how == "create" else value


def _without_nulls(value: Any, in_arrays: bool) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item, in_arrays) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, in_arrays) for item in value if not (in_arrays and item is None)]
    return value


# Making JSON of values


def jsonb_maker(sql_type: SqlType) -> Function:
    """Return a function that makes what `to_jsonb` does of a value that is not null: something that `dump_json` prints."""
    if sql_type.is_array:
        item = jsonb_maker(sql_type.element)
        return lambda items: [None if one is None else item(one) for one in items]
    match sql_type.name:
        case "json" | "jsonb":
            return parse_json
        case "float8":
            return lambda value: _float_value(float8_text(value))
        case "float4":
            return lambda value: _float_value(float4_text(value))
        case "timestamptz":
            return lambda value: _iso(value) + "+00:00"
        case "timestamp":
            return _iso
        case name if name in INTEGERS or name in ("bool", "numeric"):
            return lambda value: value
    return cast_printer(sql_type)


def _iso(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if value.microsecond else text


def _float_value(text: str) -> Any:
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    number = Decimal(text)
    return Decimal(format(number, "f"))


def json_printer(sql_type: SqlType) -> Function:
    """Return a function that makes the text that `to_json` does of a value that is not null."""
    if sql_type.is_array:
        item = json_printer(sql_type.element)
        return lambda items: f"[{','.join('null' if one is None else item(one) for one in items)}]"
    match sql_type.name:
        case "json":
            return lambda text: text
        case "jsonb":
            return normal_json
        case "bool":
            return lambda value: "true" if value else "false"
        case "numeric":
            return number_text
        case "float8" | "float4":
            show = float8_text if sql_type.name == "float8" else float4_text
            return lambda value: text if (text := show(value))[-1].isdigit() else quoted_json(text)
        case name if name in INTEGERS:
            return str
    make = jsonb_maker(sql_type)
    return lambda value: quoted_json(make(value))


def _to_jsonb(call: Call) -> Function:
    make = jsonb_maker(call.arguments[0].type)
    return lambda value: dump_json(make(value))


def _to_json(call: Call) -> Function:
    return json_printer(call.arguments[0].type)


def _build_jsonb_object(call: Call) -> Function:
    if len(call.arguments) % 2:
        return _odd_arguments
    names = [cast_printer(one.type) for one in call.arguments[::2]]
    makers = [jsonb_maker(one.type) for one in call.arguments[1::2]]

    def build(*values: Any) -> str:
        result = {}
        for at, (name, make) in enumerate(zip(names, makers, strict=True)):
            given, value = values[2 * at : 2 * at + 2]
            if given is None:
                raise EvaluationError("22023", f"argument {2 * at + 1}: key must not be null")
            result[name(given)] = None if value is None else make(value)
        return dump_json(result)

    return build


def _build_json_object(call: Call) -> Function:
    if len(call.arguments) % 2:
        return _odd_arguments
    names = [cast_printer(one.type) for one in call.arguments[::2]]
    printers = [json_printer(one.type) for one in call.arguments[1::2]]

    def build(*values: Any) -> str:
        parts = []
        for at, (name, show) in enumerate(zip(names, printers, strict=True)):
            given, value = values[2 * at : 2 * at + 2]
            if given is None:
                raise EvaluationError("22004", "null value not allowed for object key")
            parts.append(f"{quoted_json(name(given))} : {'null' if value is None else show(value)}")
        return f"{{{', '.join(parts)}}}"

    return build


def _odd_arguments(*values: Any) -> str:
    raise EvaluationError("22023", "argument list must have even number of elements")


def _build_jsonb_array(call: Call) -> Function:
    makers = [jsonb_maker(one.type) for one in call.arguments]
    return lambda *values: dump_json(
        [None if value is None else make(value) for make, value in zip(makers, values, strict=True)]
    )


def _build_json_array(call: Call) -> Function:
    printers = [json_printer(one.type) for one in call.arguments]
    return lambda *values: (
        f"[{', '.join('null' if value is None else show(value) for show, value in zip(printers, values, strict=True))}]"
    )


def _object_of(names: Sequence[str | None], values: Sequence[str | None] | None = None) -> str:
    if values is None:
        if len(names) % 2:
            raise EvaluationError("2202E", "array must have even number of elements")
        names, values = names[::2], names[1::2]
    if len(names) != len(values):
        raise EvaluationError("2202E", "mismatched array dimensions")
    if None in names:
        raise EvaluationError("22004", "null value not allowed for object key")
    return dump_json(dict(zip(names, values, strict=True)))


def _type_of(text: str) -> str:
    value = parse_json(text)
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _length(text: str) -> int:
    value = parse_json(text)
    if isinstance(value, list):
        return len(value)
    kind = "non-array" if isinstance(value, dict) else "scalar"
    raise EvaluationError("22023", f"cannot get array length of a {kind}")


def _pretty(text: str) -> str:
    out: list[str] = []

    def write(value: Any, indent: int) -> None:
        if isinstance(value, dict | list) and value:
            is_object = isinstance(value, dict)
            out.append("{" if is_object else "[")
            for at, item in enumerate(sorted(value, key=stored_order) if is_object else value):
                out.append(f"{',' if at else ''}\n{' ' * (indent + 4)}")
                if is_object:
                    out.append(f"{quoted_json(item)}: ")
                write(value[item] if is_object else item, indent + 4)
            out.append(f"\n{' ' * indent}{'}' if is_object else ']'}")
        elif isinstance(value, dict | list):
            brackets = "{}" if isinstance(value, dict) else "[]"
            out.append(f"{brackets[0]}\n{' ' * indent}{brackets[1]}")
        else:
            out.append(dump_json(value))

    write(parse_json(text), 0)
    return "".join(out)


def _strip_nulls(text: str, in_arrays: bool = False) -> str:
    return dump_json(_without_nulls(parse_json(text), in_arrays))


def _path(text: str, *path: str) -> str | None:
    return _as_json(_at_path(parse_json(text), path))


def _path_text(text: str, *path: str) -> str | None:
    return _as_text(_at_path(parse_json(text), path))


_ENTRIES: dict[str, Entry] = {
    "jsonb -> text": lambda text, name: _as_json(_member(parse_json(text), name)),
    "jsonb ->> text": lambda text, name: _as_text(_member(parse_json(text), name)),
    "jsonb -> int4": lambda text, index: _as_json(_item(parse_json(text), index)),
    "jsonb ->> int4": lambda text, index: _as_text(_item(parse_json(text), index)),
    "jsonb #> text[]": lambda text, path: _as_json(_at_path(parse_json(text), path)),
    "jsonb #>> text[]": lambda text, path: _as_text(_at_path(parse_json(text), path)),
    "jsonb_extract_path(jsonb, text[])": _path,
    "jsonb_extract_path_text(jsonb, text[])": _path_text,
    "jsonb_object_field(jsonb, text)": lambda text, name: _as_json(_member(parse_json(text), name)),
    "jsonb_object_field_text(jsonb, text)": lambda text, name: _as_text(_member(parse_json(text), name)),
    "jsonb_array_element(jsonb, int4)": lambda text, index: _as_json(_item(parse_json(text), index)),
    "jsonb_array_element_text(jsonb, int4)": lambda text, index: _as_text(_item(parse_json(text), index)),
    "json -> text": _raw_field,
    "json ->> text": lambda text, name: _raw_text(_raw_field(text, name)),
    "json -> int4": lambda text, index: _raw_at(text, [index]),
    "json ->> int4": lambda text, index: _raw_text(_raw_at(text, [index])),
    "json #> text[]": _raw_at,
    "json #>> text[]": lambda text, path: _raw_text(_raw_at(text, path)),
    "json_extract_path(json, text[])": lambda text, *path: _raw_at(text, path),
    "json_extract_path_text(json, text[])": lambda text, *path: _raw_text(_raw_at(text, path)),
    "jsonb @> jsonb": lambda text, part: _contains(parse_json(text), parse_json(part)),
    "jsonb <@ jsonb": lambda part, text: _contains(parse_json(text), parse_json(part)),
    "jsonb_contains(jsonb, jsonb)": lambda text, part: _contains(parse_json(text), parse_json(part)),
    "jsonb_contained(jsonb, jsonb)": lambda part, text: _contains(parse_json(text), parse_json(part)),
    "jsonb ? text": lambda text, name: _has_name(parse_json(text), name),
    "jsonb ?| text[]": lambda text, names: any(_has_name(value, name) for value in [parse_json(text)] for name in names),
    "jsonb ?& text[]": lambda text, names: all(
        _has_name(value, name) for value in [parse_json(text)] for name in names if name is not None
    ),
    "jsonb_exists(jsonb, text)": lambda text, name: _has_name(parse_json(text), name),
    "jsonb || jsonb": _merged,
    "jsonb_concat(jsonb, jsonb)": _merged,
    "jsonb - text": _without_name,
    "jsonb - text[]": _without_names,
    "jsonb - int4": _without_index,
    "jsonb #- text[]": _without_path,
    "jsonb_set(jsonb, text[], jsonb, bool)": _set,
    "jsonb_insert(jsonb, text[], jsonb, bool)": _insert,
    "jsonb_strip_nulls(jsonb, bool)": _strip_nulls,
    "{json}_typeof({json})": _type_of,
    "{json}_array_length({json})": _length,
    "jsonb_pretty(jsonb)": _pretty,
    "to_jsonb(anyelement)": ByCall(_to_jsonb),
    "to_json(anyelement)": ByCall(_to_json),
    "array_to_json(anyarray)": ByCall(_to_json),
    "jsonb_build_object()": lambda: "{}",
    "json_build_object()": lambda: "{}",
    "jsonb_build_array()": lambda: "[]",
    "json_build_array()": lambda: "[]",
    "jsonb_build_object(any)": ByCall(_build_jsonb_object, is_strict=False),
    "json_build_object(any)": ByCall(_build_json_object, is_strict=False),
    "jsonb_build_array(any)": ByCall(_build_jsonb_array, is_strict=False),
    "json_build_array(any)": ByCall(_build_json_array, is_strict=False),
    "jsonb_object(text[])": _object_of,
    "jsonb_object(text[], text[])": _object_of,
}
JSON: dict[str, Entry] = expanded(_ENTRIES)
