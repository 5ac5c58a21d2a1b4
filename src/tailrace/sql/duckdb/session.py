"""The definitions that a DuckDB session needs to run rendered queries."""

from importlib import resources

import duckdb

from tailrace.sql.duckdb.python_functions import register

_MACROS = ("logic", "numbers", "number_casts", "texts", "output_texts", "binary_strings", "times", "json", "arrays")


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Define the macros and functions that rendered queries call."""
    register(connection)
    folder = resources.files(__package__).joinpath("macros")
    for name in _MACROS:
        connection.execute(folder.joinpath(f"{name}.sql").read_text("utf-8"))
