"""The functions of dates, times and intervals that DuckDB calls in Python."""

from collections.abc import Sequence

from tailrace.sql.duckdb.vectorized import PythonFunction
from tailrace.sql.functions import datetime_formats, datetime_readers, time_functions

_INTERVAL = ("BIGINT", "BIGINT", "BIGINT")
"""Its months, days and microseconds."""

TIME_FUNCTIONS: Sequence[PythonFunction] = (
    PythonFunction("date_of_other_text", time_functions.date_of_text, ("VARCHAR",), "DATE"),
    PythonFunction("time_of_text", time_functions.time_of_text, ("VARCHAR",), "TIME"),
    PythonFunction("timestamp_of_other_text", time_functions.timestamp_of_text, ("VARCHAR",), "TIMESTAMP"),
    PythonFunction("timestamptz_of_other_text", time_functions.timestamptz_of_text, ("VARCHAR",), "TIMESTAMP"),
    PythonFunction("interval_of_text", time_functions.interval_of_text, ("VARCHAR",), "BIGINT[]"),
    PythonFunction("local_microseconds", time_functions.local_microseconds, ("BIGINT", "VARCHAR"), "BIGINT"),
    PythonFunction("instant_microseconds", time_functions.instant_microseconds, ("BIGINT", "VARCHAR"), "BIGINT"),
    PythonFunction("interval_parts_text", time_functions.interval_parts_text, _INTERVAL, "VARCHAR"),
    PythonFunction("justified_hours", time_functions.justified_hours, _INTERVAL, "BIGINT[]"),
    PythonFunction("justified_days", time_functions.justified_days, _INTERVAL, "BIGINT[]"),
    PythonFunction("justified_interval", time_functions.justified_interval, _INTERVAL, "BIGINT[]"),
    PythonFunction("stepped_months", time_functions.stepped_months, ("BIGINT", "BIGINT", "BIGINT[]"), "BIGINT[]"),
    PythonFunction("timestamp_chars", datetime_formats.timestamp_chars, ("BIGINT", "VARCHAR", "VARCHAR"), "VARCHAR"),
    PythonFunction("interval_chars", datetime_formats.interval_chars, (*_INTERVAL, "VARCHAR"), "VARCHAR"),
    PythonFunction("read_chars", datetime_readers.read_chars, ("VARCHAR", "VARCHAR"), "BIGINT"),
)
