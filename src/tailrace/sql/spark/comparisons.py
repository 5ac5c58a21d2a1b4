"""Comparisons of values of every type. Texts are compared by their bytes, as PostgreSQL does in the collation C."""

from tailrace.sql.duckdb.templates import expanded
from tailrace.sql.spark.numbers import of_decimals
from tailrace.sql.spark.templates import Template

COMPARED = ("=", "<>", "<", "<=", ">", ">=")
PLAIN = ("bool", "text", "bytea", "uuid", "float8", "interval")
"""Types that Spark compares as PostgreSQL does."""


def _comparisons() -> dict[str, Template]:
    entries: dict[str, Template] = {}
    for operator in COMPARED:
        plain = f"({{0}} {operator} {{1}})"
        entries[f"{{int}} {operator} {{int}}"] = plain
        # A date beside a timestamp is its first moment in UTC.
        entries[f"{{moment}} {operator} {{moment}}"] = plain
        for name in PLAIN:
            entries[f"{name} {operator} {name}"] = plain
        entries[f"numeric {operator} numeric"] = of_decimals(plain, is_comparison=True)
    for operator in ("=", "<>"):
        entries[f"anyarray {operator} anyarray"] = f"({{0}} {operator} {{1}})"
        # The order of labels is not that of texts.
        entries[f"anyenum {operator} anyenum"] = f"({{0}} {operator} {{1}})"
    return entries


COMPARISONS: dict[str, Template] = expanded(_comparisons())
