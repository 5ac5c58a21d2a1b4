"""Comparisons of values of every type."""

from collections.abc import Sequence

from tailrace.sql.analysis.tree import Call
from tailrace.sql.duckdb.arrays import compared_arrays
from tailrace.sql.duckdb.json import compared_json
from tailrace.sql.duckdb.keys import key_of
from tailrace.sql.duckdb.numbers import of_numerics
from tailrace.sql.duckdb.templates import Template, expanded

_COMPARED = ("=", "<>", "<", "<=", ">", ">=")
_NAMES = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _comparisons() -> dict[str, Template]:
    entries: dict[str, Template] = {}
    for operator in _COMPARED:
        plain = f"({{0}} {operator} {{1}})"
        for left, right in (("name", "name"), ("name", "text"), ("text", "name")):
            entries[f"{left} {operator} {right}"] = plain
        # The spaces at the end of char(n) do not count.
        entries[f"bpchar {operator} bpchar"] = f"(rtrim({{0}}, ' ') {operator} rtrim({{1}}, ' '))"
        for kind in ("{int}", "{float}", "{moment}", "{string}"):
            entries[f"{kind} {operator} {kind}"] = plain
        entries[f"{{plain}} {operator} {{plain}}"] = plain
        entries[f"numeric {operator} numeric"] = of_numerics(plain, f"numeric_{_NAMES[operator]}")
        entries[f"anyarray {operator} anyarray"] = compared_arrays(operator)
        entries[f"jsonb {operator} jsonb"] = compared_json(operator)
        entries[f"anyenum {operator} anyenum"] = plain if operator in ("=", "<>") else _compared_enums(operator)
    return entries


def _compared_enums(operator: str) -> Template:
    def render(arguments: Sequence[str], call: Call) -> str:
        left, right = (key_of(text, one.type) for text, one in zip(arguments, call.arguments, strict=True))
        return f"({left} {operator} {right})"

    return render


COMPARISONS: dict[str, Template] = expanded(_comparisons())
