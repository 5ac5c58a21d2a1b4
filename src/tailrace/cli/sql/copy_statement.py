"""COPY in PostgreSQL's syntax, at the prompt and in scripts of `tailrace sql`.

    COPY shop.orders (id, total) FROM 'orders.csv' WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL '\\N')
    COPY (SELECT * FROM shop.orders) TO 'orders.parquet'

PostgreSQL's parser reads it; a query in it is left to the server. The file is one of the client. Options are PostgreSQL's, with
`parquet` as a format, and `START_LINE` and `REJECT_FILE` besides.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pgparse

from tailrace.cli.copy import CopyOrder
from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError

_PART = r'(?:"(?:[^"]|"")*"|[^\W\d][\w$]*)'
_HEAD = re.compile(rf"(?:\s|--[^\n]*\n|/\*.*?\*/)*COPY\s*(?:(?P<query>\()|(?P<name>{_PART}(?:\s*\.\s*{_PART})*))", re.I | re.S)
_MARK = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|[()]""", re.S
)
_TABLE = "t"
_QUERY = "(SELECT 1)"
_BOOLEANS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


def parse_copy(text: str) -> CopyOrder:
    """Return what a COPY statement asks for. Raises `SqlError` with the place of what is wrong."""
    source = _source(text)
    # The source is replaced: its names and queries follow Tailrace's grammar, not PostgreSQL's.
    placeholder = _TABLE if source.is_table else _QUERY
    parsed = _parsed(text[: source.begin] + placeholder + text[source.end :], text, source, placeholder)
    is_from = bool(parsed.get("is_from"))
    if parsed.get("is_program"):
        raise UnsupportedSqlError("COPY with PROGRAM is not supported; use a pipe and `tailrace copy`")
    if "whereClause" in parsed:
        raise UnsupportedSqlError("COPY with WHERE is not supported; copy all rows, then DELETE some")
    columns = tuple(name["String"]["sval"] for name in parsed.get("attlist", ()))
    order = CopyOrder(source.text, is_from, parsed.get("filename", "-"), columns or None, header=False)
    for option in parsed.get("options", ()):
        order = _with_option(order, option["DefElem"])
    if order.format is None and order.file == "-":
        raise SqlError("COPY does not say which format; add WITH (FORMAT csv)")
    if order.reject_file is not None and order.on_error != "skip":
        raise SqlError("REJECT_FILE is for rows that are skipped; add ON_ERROR ignore")
    return order


class _Source(NamedTuple):
    text: str
    is_table: bool
    begin: int
    end: int


def _source(text: str) -> _Source:
    head = _HEAD.match(text)
    if head is None:
        raise SqlSyntaxError("expected COPY and the name of a table or a query in brackets")
    if head["name"] is not None:
        parts = re.findall(_PART, head["name"])
        name = ".".join(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)
        return _Source(name, True, head.start("name"), head.end("name"))
    begin = head.start("query")
    depth = 0
    for mark in _MARK.finditer(text, begin):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if not depth:
            return _Source(text[begin + 1 : mark.start()], False, begin, mark.end())
    raise SqlSyntaxError("the query of COPY has no closing bracket")


def _parsed(written: str, text: str, source: _Source, placeholder: str) -> dict[str, Any]:
    try:
        (statement,) = pgparse.parse(written)
    except pgparse.PGQueryError as error:
        at = len(written.encode()[: max(0, error.position - 1)].decode(errors="ignore"))
        if at > source.begin:
            at += source.end - source.begin - len(placeholder)
        before = text[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
        raise SqlSyntaxError(str(error.message), line, column) from error
    found: dict[str, Any] = statement["stmt"]["CopyStmt"]
    return found


def _with_option(order: CopyOrder, option: dict[str, Any]) -> CopyOrder:
    name = option["defname"].lower()
    value = _value(option.get("arg"))
    read = COPY_OPTIONS.get(name)
    if read is None:
        known = ", ".join(known.upper() for known in COPY_OPTIONS)
        raise UnsupportedSqlError(f"the option {name.upper()} of COPY is not supported; use {known}")
    return read(order, value)


def _value(argument: Any) -> str:
    if argument is None:
        return "true"
    ((kind, value),) = argument.items()
    found = value.get({"String": "sval", "Integer": "ival", "Float": "fval", "Boolean": "boolval"}.get(kind, ""), "")
    return str(found).lower() if isinstance(found, bool) else str(found)


def _format(order: CopyOrder, value: str) -> CopyOrder:
    if value.lower() not in ("csv", "parquet"):
        raise UnsupportedSqlError(f"FORMAT {value} is not supported; use csv or parquet")
    return order._replace(format=value.lower())


def _header(order: CopyOrder, value: str) -> CopyOrder:
    if value.lower() == "match" and order.is_from:
        return order._replace(header="match")
    if value.lower() not in _BOOLEANS:
        raise SqlError(f"HEADER is {value!r}; it can be true, false" + (" or match" if order.is_from else ""))
    # PostgreSQL ignores the names, and takes the columns in their order.
    return order._replace(header="skip" if _BOOLEANS[value.lower()] else False)


def _on_error(order: CopyOrder, value: str) -> CopyOrder:
    if value.lower() not in ("stop", "ignore"):
        raise SqlError(f"ON_ERROR is {value!r}; it can be stop or ignore")
    return order._replace(on_error="skip" if value.lower() == "ignore" else "stop")


def _encoding(order: CopyOrder, value: str) -> CopyOrder:
    if value.lower().replace("-", "") != "utf8":
        raise UnsupportedSqlError(f"ENCODING {value} is not supported; files are UTF-8")
    return order


def _start_line(order: CopyOrder, value: str) -> CopyOrder:
    if not value.isdigit() or int(value) < 1:
        raise SqlError(f"START_LINE is {value!r}; lines are counted from 1")
    return order._replace(start_line=int(value))


COPY_OPTIONS: dict[str, Callable[[CopyOrder, str], CopyOrder]] = {
    "format": _format,
    "header": _header,
    "delimiter": lambda order, value: order._replace(delimiter=value),
    "null": lambda order, value: order._replace(null=value),
    "quote": lambda order, value: order._replace(quote=value),
    "escape": lambda order, value: order._replace(escape=value),
    "encoding": _encoding,
    "on_error": _on_error,
    "start_line": _start_line,
    "reject_file": lambda order, value: order._replace(reject_file=value),
}
