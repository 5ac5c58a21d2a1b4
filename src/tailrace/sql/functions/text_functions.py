"""What the functions of texts do that DuckDB can't express: format, Unicode, identifiers and LIKE with escapes."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from tailrace.sql.functions import characters

_LIMIT_BYTES = 10_000_000
_FORMAT = re.compile(r"%(?:(\d+)\$)?(-*)(?:(\d+)|\*(?:(\d+)\$)?)?(.?)", re.DOTALL)
_STAR = re.compile(r"%(?:\d+\$)?-*\*")
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_ESCAPE = re.compile(r"\\(?:(\\)|\+([0-9a-fA-F]{6})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-9a-fA-F]{4})|)")
_IDENTIFIER = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*))\s*')
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED_WORDS = frozenset(
    (
        "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "between",
        "bigint", "binary", "bit", "boolean", "both", "case", "cast", "char", "character", "check", "coalesce", "collate",
        "collation", "column", "concurrently", "constraint", "create", "cross", "current_catalog", "current_date",
        "current_role", "current_schema", "current_time", "current_timestamp", "current_user", "dec", "decimal",
        "default", "deferrable", "desc", "distinct", "do", "else", "end", "except", "exists", "extract", "false", "fetch",
        "float", "for", "foreign", "freeze", "from", "full", "grant", "greatest", "group", "grouping", "having", "ilike",
        "in", "initially", "inner", "inout", "int", "integer", "intersect", "interval", "into", "is", "isnull", "join",
        "json", "json_array", "json_arrayagg", "json_exists", "json_object", "json_objectagg", "json_query",
        "json_scalar", "json_serialize", "json_table", "json_value", "lateral", "leading", "least", "left", "like",
        "limit", "localtime", "localtimestamp", "merge_action", "national", "natural", "nchar", "none", "normalize",
        "not", "notnull", "null", "nullif", "numeric", "offset", "on", "only", "or", "order", "out", "outer", "overlaps",
        "overlay", "placing", "position", "precision", "primary", "real", "references", "returning", "right", "row",
        "select", "session_user", "setof", "similar", "smallint", "some", "substring", "symmetric", "system_user",
        "table", "tablesample", "then", "time", "timestamp", "to", "trailing", "treat", "trim", "true", "union", "unique",
        "user", "using", "values", "varchar", "variadic", "verbose", "when", "where", "window", "with", "xmlattributes",
        "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot",
        "xmlserialize", "xmltable",
    )
)  # fmt: skip
"""The words of PostgreSQL that are a name of a table or column only in quotes."""


class TextError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


def quoted_literal(text: str) -> str:
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def quoted_identifier(text: str) -> str:
    """Return a name as SQL writes it: in quotes where it needs them."""
    if _PLAIN_NAME.fullmatch(text) and text not in _RESERVED_WORDS:
        return text
    return '"' + text.replace('"', '""') + '"'


def format_text(text: str, values: Sequence[str | None]) -> str:
    """Return a text with `%s`, `%I` and `%L` replaced by values."""
    out = []
    at = used = size = 0
    while True:
        start = text.find("%", at)
        out.append(text[at : start if start >= 0 else len(text)])
        if start < 0:
            return "".join(out)
        found = _FORMAT.match(text, start)
        if text.startswith("%%", start):
            out.append("%")
            at = start + 2
            continue
        if found is None or not found[5]:
            raise TextError("[22023] unterminated format() type specifier")
        place, minus, width_text, width_place, kind = found.groups()
        at = found.end()
        width = int(width_text or 0)
        if _STAR.match(text, start):
            used = int(width_place) - 1 if width_place else used
            width_value = _argument(values, used)
            width = _width(width_value)
            used += 1
        used = int(place) - 1 if place else used
        if kind not in "sIL":
            raise TextError(f'[22023] unrecognized format() type specifier "{kind}"')
        value = _argument(values, used)
        if kind == "L":
            value = "NULL" if value is None else quoted_literal(value)
        elif kind == "I":
            if value is None:
                raise TextError("[22004] null values cannot be formatted as an SQL identifier")
            value = quoted_identifier(value)
        used += 1
        if abs(width) > _LIMIT_BYTES or size + abs(width) > _LIMIT_BYTES:
            raise TextError("[54000] requested length too large: a text of a query can have 10 MB")
        shown = value or ""
        shown = shown.ljust(abs(width)) if minus or width < 0 else shown.rjust(width)
        size += len(shown)
        out.append(shown)


def _argument(values: Sequence[str | None], at: int) -> str | None:
    if at < 0:
        raise TextError("[22023] format specifies argument 0, but arguments are numbered from 1")
    if at >= len(values):
        raise TextError("[22023] too few arguments for format()")
    return values[at]


def _width(value: str | None) -> int:
    if value is None:
        return 0
    try:
        width = int(value)
    except ValueError:
        raise TextError(f'[22P02] invalid input syntax for type integer: "{value}"') from None
    if not -(2**31) < width < 2**31:
        raise TextError(f'[22003] value "{value}" is out of range for type integer')
    return width


def normalized(text: str, form: str) -> str:
    """Return a Unicode normal form. Fails for characters that Python's Unicode does not have yet."""
    name = form.upper()
    if name not in _FORMS:
        raise TextError(f"[22023] invalid normalization form: {form}")
    for character in text:
        if character > "\x7f" and unicodedata.category(character) == "Cn":
            raise TextError(f"[0A000] normalize does not know the character U+{ord(character):04X}")
    return unicodedata.normalize(name, text)  # type: ignore[arg-type]


def unicode_unescaped(text: str) -> str:
    """Return a text with `\\0061`, `\\+000061`, `\\u0061` and `\\U00000061` replaced by characters."""
    units: list[int | str] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        units += text[at : found.start()]
        at = found.end()
        if found[1]:
            units.append("\\")
            continue
        digits = next((one for one in found.groups()[1:] if one), None)
        if digits is None:
            raise TextError("[42601] invalid Unicode escape")
        code = int(digits, 16)
        if code == 0 or code > characters.LAST_CHARACTER:
            raise TextError("[42601] invalid Unicode escape value" if code == 0 else "[22023] invalid Unicode code point")
        units.append(code)
    units += text[at:]
    return "".join(_characters_of(units))


def _characters_of(units: Sequence[int | str]) -> Iterator[str]:
    high: int | None = None
    for unit in units:
        is_low = isinstance(unit, int) and 0xDC00 <= unit <= 0xDFFF
        if (high is not None) != is_low:
            raise TextError("[42601] invalid Unicode surrogate pair")
        if isinstance(unit, str):
            yield unit
        elif high is not None:
            yield chr(0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
            high = None
        elif 0xD800 <= unit <= 0xDBFF:
            high = unit
        else:
            yield chr(unit)
    if high is not None:
        raise TextError("[42601] invalid Unicode surrogate pair")


def identifier_parts(text: str, is_strict: bool) -> list[str]:
    """Return the parts of a qualified identifier, as SQL reads them."""
    parts = []
    at = 0
    while True:
        found = _IDENTIFIER.match(text, at)
        if found is None or found[1] == "":
            raise TextError(f'[22023] string is not a valid identifier: "{text}"')
        parts.append(found[1].replace('""', '"') if found[1] is not None else re.sub("[A-Z]+", _lowered, found[2]))
        at = found.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            if is_strict:
                raise TextError(f'[22023] string is not a valid identifier: "{text}"')
            return parts
        at += 1


def _lowered(found: re.Match[str]) -> str:
    return found[0].lower()


def name_of_text(text: str) -> str:
    """Return the first 63 bytes of a text, without half a character."""
    return text.encode()[:63].decode(errors="ignore")


def like_with_escapes(text: str, pattern: str) -> bool:
    """Return whether a text is LIKE a pattern in which a backslash makes the next character plain."""
    return _like(text, pattern)


def bytes_like(text: bytes, pattern: bytes) -> bool:
    return _like(text.decode("latin-1"), pattern.decode("latin-1"))


def _like(text: str, pattern: str) -> bool:
    """Match as PostgreSQL does, which finds an escape at the end of the pattern only if it comes as far."""
    at = place = 0
    star = -1
    mark = 0
    while True:
        kind = pattern[place] if place < len(pattern) else None
        if kind == "%":
            star, mark = place, at
            place += 1
            _check_after(pattern, place, len(text) - at)
            continue
        if at < len(text) and kind is not None:
            if kind == "\\":
                if place + 1 >= len(pattern):
                    raise TextError("[22025] LIKE pattern must not end with escape character")
                if pattern[place + 1] == text[at]:
                    at, place = at + 1, place + 2
                    continue
            elif kind in ("_", text[at]):
                at, place = at + 1, place + 1
                continue
        elif at >= len(text) and kind is None:
            return True
        if star < 0 or mark >= len(text):
            return False
        mark += 1
        at, place = mark, star + 1


def _check_after(pattern: str, place: int, left: int) -> None:
    """Fail if an escape at the end follows a `%`. PostgreSQL looks for what follows only if there is text left."""
    if not left:
        return
    while place < len(pattern) and pattern[place] in "%_":
        left -= pattern[place] == "_"
        if left < 0:
            return
        place += 1
    if pattern[place:] == "\\":
        raise TextError("[22025] LIKE pattern must not end with escape character")


def like_escape(pattern: str, escape: str) -> str:
    """Return a pattern with another escape character as one with backslashes."""
    if len(escape) > 1:
        raise TextError("[22025] invalid escape string")
    if not escape:
        return pattern.replace("\\", "\\\\")
    if escape == "\\":
        return pattern
    out = []
    is_after = False
    for character in pattern:
        if character == escape and not is_after:
            out.append("\\")
            is_after = True
        elif character == "\\" and not is_after:
            out.append("\\\\")
        else:
            out.append(character)
            is_after = False
    return "".join(out)
