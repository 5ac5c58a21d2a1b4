"""All functions, operators, aggregates and casts of PostgreSQL's catalog that DuckDB computes."""

from tailrace.sql.duckdb.aggregates import AGGREGATES as OTHER_AGGREGATES
from tailrace.sql.duckdb.arrays import ARRAY_ROWS, ARRAYS
from tailrace.sql.duckdb.binary_strings import BINARY_STRINGS
from tailrace.sql.duckdb.casts import cast_template
from tailrace.sql.duckdb.comparisons import COMPARISONS
from tailrace.sql.duckdb.json import JSON, JSON_ROWS
from tailrace.sql.duckdb.numbers import NUMBERS
from tailrace.sql.duckdb.pattern_matching import PATTERN_MATCHING, PATTERN_ROWS
from tailrace.sql.duckdb.series import SERIES_ROWS
from tailrace.sql.duckdb.templates import AggregateTemplate, RowFunction, Template
from tailrace.sql.duckdb.texts import TEXT_ROWS, TEXTS
from tailrace.sql.duckdb.times import TIME_AGGREGATES, TIME_ROWS, TIMES

FUNCTIONS: dict[str, Template] = {
    **COMPARISONS,
    **NUMBERS,
    **TEXTS,
    **BINARY_STRINGS,
    **PATTERN_MATCHING,
    **TIMES,
    **JSON,
    **ARRAYS,
}
ROW_FUNCTIONS: dict[str, RowFunction] = {**ARRAY_ROWS, **SERIES_ROWS, **JSON_ROWS, **TIME_ROWS, **TEXT_ROWS, **PATTERN_ROWS}
AGGREGATES: dict[str, AggregateTemplate] = {**OTHER_AGGREGATES, **TIME_AGGREGATES}

__all__ = ["AGGREGATES", "FUNCTIONS", "ROW_FUNCTIONS", "cast_template"]
