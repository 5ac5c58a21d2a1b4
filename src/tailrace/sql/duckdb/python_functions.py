"""Functions that DuckDB calls in Python, for what it can't express.

A query over many rows should meet them after it has grouped, or not at all.
"""

from collections.abc import Sequence

import duckdb
from duckdb.func import FunctionNullHandling, PythonUDFType

from tailrace.sql.duckdb.numeric_calls import NUMBER_FUNCTIONS
from tailrace.sql.duckdb.text_calls import TEXT_FUNCTIONS
from tailrace.sql.duckdb.time_calls import TIME_FUNCTIONS
from tailrace.sql.duckdb.vectorized import PythonFunction, vectorized
from tailrace.sql.functions import array_texts, json_functions


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make all functions known to a session."""
    for function in PYTHON_FUNCTIONS:
        connection.create_function(
            function.name,
            vectorized(function),
            list(function.arguments),
            function.result,
            type=PythonUDFType.ARROW,
            # Nulls are passed over by `vectorized`; a result may be null though no argument is.
            null_handling=FunctionNullHandling.SPECIAL,
        )


PYTHON_FUNCTIONS: Sequence[PythonFunction] = (
    *NUMBER_FUNCTIONS,
    *TEXT_FUNCTIONS,
    PythonFunction("array_in", array_texts.read_array, ("VARCHAR",), "VARCHAR[]"),
    *(PythonFunction(*one) for one in json_functions.JSON_FUNCTIONS),
    *TIME_FUNCTIONS,
)
