"""Texts and bytes."""

from tailrace.sql.duckdb.templates import Template, expanded

TEXTS: dict[str, Template] = expanded(
    {
        "text || text": "({0} || {1})",
        "lower(text)": "lower({0})",
        "upper(text)": "upper({0})",
        "length(text)": "CAST(length({0}) AS INTEGER)",
    }
)
