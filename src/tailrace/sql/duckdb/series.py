"""Series of numbers: generate_series. Those of timestamps are in `times.py`."""

from collections.abc import Sequence

from tailrace.sql.analysis.tree import Call
from tailrace.sql.duckdb.templates import RowFunction, is_loose


def _numeric_series(arguments: Sequence[str], call: Call) -> str:
    texts = [
        text if is_loose(argument.type) else f"CAST({text} AS VARCHAR)"
        for text, argument in zip(arguments, call.arguments, strict=True)
    ]
    first, last, step = [*texts, "'1'"][:3]
    return f"numeric_series({first}, {last}, {step})"


SERIES_ROWS: dict[str, RowFunction] = {
    "generate_series(int4, int4)": RowFunction("CAST(integer_series({0}, {1}, 1) AS INTEGER[])"),
    "generate_series(int4, int4, int4)": RowFunction("CAST(integer_series({0}, {1}, {2}) AS INTEGER[])"),
    "generate_series(int8, int8)": RowFunction("integer_series({0}, {1}, 1)"),
    "generate_series(int8, int8, int8)": RowFunction("integer_series({0}, {1}, {2})"),
    "generate_series(numeric, numeric)": RowFunction(_numeric_series),
    "generate_series(numeric, numeric, numeric)": RowFunction(_numeric_series),
}
