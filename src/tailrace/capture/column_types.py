"""The types of PostgreSQL as types of columns, and their values as the JSON of change events.

Values come as PostgreSQL prints them in a session with `TimeZone=UTC`, `DateStyle=ISO`, `IntervalStyle=postgres`,
`bytea_output=hex` and `client_encoding=UTF8`. A value that its column type can't hold, such as the date `infinity`, has no
JSON: it is *unmapped*, and events carry PostgreSQL's text of it beside the row.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.errors import InvalidRequestError
from tailrace.model.table import ColumnKind, ColumnType

TypeKind = Literal["base", "enum", "domain", "array", "range", "multirange", "composite", "pseudo"]

EncodeCell = Callable[[bytes], bytes | None]
"""Returns the JSON of PostgreSQL's text of a value, or `None` if the column type can't hold the value."""

MAX_JSON_DEPTH = 500
"""Objects and arrays inside each other. Readers of JSON have such bounds, too; deeper values are unmapped."""
MAX_INTERVAL_HOURS = 2_562_047
"""Intervals of tables hold up to 292 years in hours."""

_MAX_DOMAINS = 100
_MODIFIER_HEADER = 4
"""What PostgreSQL adds to lengths and precisions in a modifier."""


class PostgresType(NamedTuple):
    """A type as `pg_type` describes it."""

    oid: int
    name: str
    kind: TypeKind = "base"
    element_oid: int = 0
    """The type of the elements of an array."""
    base_oid: int = 0
    """The type under a domain."""
    base_modifier: int = -1
    """The modifier that a domain gives its base type."""
    delimiter: str = ","
    """What stands between the elements of an array of this type (`typdelim`)."""


_TEXT = ColumnType("text")
_BOX = 603
_NUMERIC, _VARCHAR, _BPCHAR = 1700, 1043, 1042
_BUILT_IN: dict[int, tuple[str, ColumnKind, int]] = {
    16: ("bool", "boolean", 1000),
    17: ("bytea", "bytes", 1001),
    18: ("char", "text", 1002),
    19: ("name", "text", 1003),
    20: ("int8", "bigint", 1016),
    21: ("int2", "smallint", 1005),
    23: ("int4", "integer", 1007),
    25: ("text", "text", 1009),
    26: ("oid", "bigint", 1028),
    114: ("json", "json", 199),
    700: ("float4", "real", 1021),
    701: ("float8", "double", 1022),
    _BPCHAR: ("bpchar", "text", 1014),
    _VARCHAR: ("varchar", "text", 1015),
    1082: ("date", "date", 1182),
    1083: ("time", "time", 1183),
    1114: ("timestamp", "timestamp", 1115),
    1184: ("timestamptz", "timestamp", 1185),
    1186: ("interval", "interval", 1187),
    _NUMERIC: ("numeric", "decimal", 1231),
    2950: ("uuid", "uuid", 2951),
    3802: ("jsonb", "json", 3807),
}
"""Types that are more than text, by their OID: the name, the kind of column, and the OID of the array."""
_TEXT_ARRAYS = {
    143: 142, 629: 628, 651: 650, 719: 718, 775: 774, 791: 790, 1017: 600, 1018: 601, 1019: 602, 1027: 604,
    1040: 829, 1041: 869, 1270: 1266, 1561: 1560, 1563: 1562, 3643: 3614, 3645: 3615, 3905: 3904, 3907: 3906, 3909: 3908,
    3911: 3910, 3913: 3912, 3927: 3926,
}  # fmt: skip
"""Arrays of built-in types that are text: geometric types, inet, money, bit, timetz, ranges and the like."""
_ELEMENTS = {array: oid for oid, (_, _, array) in _BUILT_IN.items()} | _TEXT_ARRAYS


def is_built_in(oid: int) -> bool:
    """Return whether `column_type` knows a type without looking it up."""
    return oid in _BUILT_IN or oid in _ELEMENTS


def column_type(oid: int, modifier: int, types: Mapping[int, PostgresType]) -> ColumnType:
    """Return the type of a column whose type in PostgreSQL has this OID and modifier.

    `types` has those that are not built in: domains with their base types, arrays with their elements. What is not there is
    text.
    """
    for _ in range(_MAX_DOMAINS):
        known = types.get(oid)
        if known is None or known.kind != "domain":
            break
        oid, modifier = known.base_oid, known.base_modifier
    element = _ELEMENTS.get(oid) or (known.element_oid if known is not None and known.kind == "array" else 0)
    if not element:
        return _scalar_type(oid, modifier)
    delimited = types.get(element)
    if element == _BOX or (delimited is not None and delimited.delimiter != ","):
        return _TEXT
    inner = column_type(element, modifier, types)
    return ColumnType("list", element=_TEXT if inner.kind == "list" else inner)


def _scalar_type(oid: int, modifier: int) -> ColumnType:
    found = _BUILT_IN.get(oid)
    if found is None:
        return _TEXT
    kind = found[1]
    size = modifier - _MODIFIER_HEADER
    if oid == _NUMERIC and modifier >= _MODIFIER_HEADER:
        precision = size >> 16 & 0xFFFF
        # The scale has 11 bits with a sign.
        scale = (size & 0x7FF ^ 0x400) - 0x400
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return ColumnType("decimal", precision=precision, scale=scale)
    elif oid == _VARCHAR and size > 0:
        return ColumnType("text", length=size)
    elif oid == _BPCHAR and size > 0:
        return ColumnType("char", length=size)
    return ColumnType(kind)


def cell_encoder(type_: ColumnType) -> EncodeCell:
    """Return a function that makes JSON of the values of a column type."""
    match type_.kind:
        case "boolean":
            return _encode_boolean
        case "smallint" | "integer" | "bigint":
            return _encode_integer
        case "double" | "real":
            return _encode_float
        case "decimal":
            return _encode_any_decimal if type_.precision is None else _encode_decimal
        case "bytes":
            return _encode_bytes
        case "date":
            return _encode_date
        case "time":
            return _encode_time
        case "timestamp":
            return _encode_timestamp
        case "interval":
            return _encode_interval
        case "uuid":
            return _encode_quoted
        case "json":
            return _encode_json
        case "list":
            return _list_encoder(cell_encoder(type_.element or _TEXT))
    return encode_text


def unmapped_text(cell: bytes) -> bytes:
    """Return PostgreSQL's text of a value as JSON. If it is not UTF-8, it is `\\x` with its bytes in hexadecimal."""
    return encode_text(cell) or b'"\\\\x%b"' % cell.hex().encode()


_to_json = msgspec.json.Encoder().encode
_is_plain = re.compile(rb"[ !#-\[\]-\x7f]*").fullmatch


def encode_text(cell: bytes) -> bytes | None:
    if _is_plain(cell):
        return b'"%b"' % cell
    try:
        # A database with the encoding SQL_ASCII holds any bytes.
        return _to_json(cell.decode())
    except UnicodeDecodeError:
        return None


def _encode_boolean(cell: bytes) -> bytes | None:
    return {b"t": b"true", b"f": b"false"}.get(cell)


_is_integer = re.compile(rb"-?[0-9]+").fullmatch
_is_number = re.compile(rb"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?").fullmatch
_is_decimal = re.compile(rb"-?[0-9]+(\.[0-9]+)?").fullmatch
_is_date = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_is_time = re.compile(rb"([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.([0-9]{1,6}))?").fullmatch
_is_timestamp = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(?:\+00)?").fullmatch
_OTHER_OFFSET = re.compile(rb"[0-9]{4,}-[0-9]{2}-[0-9]{2} [0-9:.]+[+-][0-9:]+( BC)?").fullmatch
_is_in_utc = re.compile(rb".*\+00( BC)?").fullmatch
_HOURS = re.compile(rb"-?([0-9]+):[0-9]{2}:[0-9.]+")
_SPACES_OR_NESTING = re.compile(rb"[ \t\r\n\\\[{]")
_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _encode_integer(cell: bytes) -> bytes | None:
    return cell if _is_integer(cell) else None


def _encode_float(cell: bytes) -> bytes | None:
    """A number without a fraction gets one, so that readers of JSON without a schema take it for a float, too."""
    found = _is_number(cell)
    if not found:
        return None
    return cell if found[1] or found[2] else cell + b".0"


def _encode_decimal(cell: bytes) -> bytes | None:
    return b'"%b"' % cell if _is_decimal(cell) else None


def _encode_any_decimal(cell: bytes) -> bytes | None:
    return b'"%b"' % cell if _is_decimal(cell) or cell in (b"NaN", b"Infinity", b"-Infinity") else None


def _encode_bytes(cell: bytes) -> bytes:
    if cell[:2] != b"\\x":
        raise InvalidRequestError(
            f"the database has sent a bytea as {cell[:20]!r}, which is not hexadecimal; set bytea_output = 'hex' for the role"
            " that captures"
        )
    return b'"%b"' % b64encode(bytes.fromhex(cell[2:].decode()))


def _encode_date(cell: bytes) -> bytes | None:
    return b'"%b"' % cell if _is_date(cell) else None


def _encode_time(cell: bytes) -> bytes | None:
    found = _is_time(cell)
    return b'"%b.%b"' % (cell[:8], (found[2] or b"").ljust(6, b"0")) if found else None


def _encode_timestamp(cell: bytes) -> bytes | None:
    found = _is_timestamp(cell)
    if not found:
        if _OTHER_OFFSET(cell) and not _is_in_utc(cell):
            raise InvalidRequestError(
                f"the database has sent the timestamp {cell.decode()!r}, which is not in UTC; the session that captures must"
                " run with TimeZone = 'UTC'"
            )
        return None
    date, time, fraction = found.groups()
    return b'"%bT%b.%bZ"' % (date, time, (fraction or b"").ljust(6, b"0"))


def _encode_interval(cell: bytes) -> bytes | None:
    if cell in (b"infinity", b"-infinity"):
        return None
    hours = _HOURS.search(cell)
    return None if hours and int(hours[1]) >= MAX_INTERVAL_HOURS else b'"%b"' % cell


def _encode_quoted(cell: bytes) -> bytes | None:
    return b'"%b"' % cell


def _encode_json(cell: bytes) -> bytes | None:
    """JSON without white space between its parts. Nothing else changes: digits, escapes, and the order of members stay."""
    if not _SPACES_OR_NESTING.search(cell) and cell.isascii():
        return cell
    try:
        cell.decode()
        # PostgreSQL's json accepts half a surrogate pair, which no text can hold.
        return msgspec.json.format(cell, indent=-1) if _is_flat(cell) else None
    except (UnicodeDecodeError, msgspec.MsgspecError):
        return None


def _is_flat(cell: bytes) -> bool:
    if cell.count(b"[") + cell.count(b"{") <= MAX_JSON_DEPTH:
        return True
    depth = 0
    for part in _NESTING.findall(cell):
        if part in (b"[", b"{"):
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return False
        elif part in (b"]", b"}"):
            depth -= 1
    return True


_ARRAY_PART = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{}",\\]+)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def _list_encoder(encode_element: EncodeCell) -> EncodeCell:
    def encode(cell: bytes) -> bytes | None:
        """Encode an array of one dimension that begins at 1."""
        if cell == b"{}":
            return b"[]"
        if cell[:1] != b"{" or cell[-1:] != b"}" or cell[1:2] == b"{":
            return None
        at, stop = 1, len(cell) - 1
        parts: list[bytes] = []
        while True:
            found = _ARRAY_PART.match(cell, at, stop)
            if not found:
                return None
            quoted, plain = found.groups()
            if plain is None:
                element = encode_element(_ESCAPED.sub(rb"\1", quoted))
            else:
                element = b"null" if plain == b"NULL" else encode_element(plain)
            if element is None:
                return None
            parts.append(element)
            at = found.end()
            if at == stop:
                return b"[%b]" % b",".join(parts)
            if cell[at : at + 1] != b",":
                return None
            at += 1

    return encode
