"""Aggregates and window functions."""

from tailrace.sql.duckdb.templates import AggregateTemplate

AGGREGATES: dict[str, AggregateTemplate] = {
    "count()": lambda call: call("count", "*"),
    "count(any)": lambda call: call("count"),
    "sum(int2)": lambda call: f"CAST({call('sum')} AS BIGINT)",
    "sum(int4)": lambda call: f"CAST({call('sum')} AS BIGINT)",
    "sum(int8)": lambda call: f"CAST({call('sum')} AS DECIMAL(38, 0))",
    "sum(float8)": lambda call: call("sum"),
    "avg(int2)": lambda call: f"numeric_div(CAST({call('sum')} AS VARCHAR), CAST({call('count')} AS VARCHAR))",
    "avg(int4)": lambda call: f"numeric_div(CAST({call('sum')} AS VARCHAR), CAST({call('count')} AS VARCHAR))",
    "avg(int8)": lambda call: f"numeric_div(CAST({call('sum')} AS VARCHAR), CAST({call('count')} AS VARCHAR))",
    "row_number()": lambda call: call("row_number"),
}
