"""Comparisons of values of every type."""

from tailrace.sql.duckdb.arrays import compared_arrays
from tailrace.sql.duckdb.json import compared_json
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
    return entries


COMPARISONS: dict[str, Template] = expanded(_comparisons())
