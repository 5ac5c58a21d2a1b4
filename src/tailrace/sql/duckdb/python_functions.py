"""Functions that DuckDB calls in Python, for what it can't express.

A query over many rows should meet them after it has grouped, or not at all.
"""

from collections.abc import Sequence

import duckdb
from duckdb.func import FunctionNullHandling, PythonUDFType

from tailrace.sql.duckdb import array_texts, byte_functions, characters, json_functions, text_functions
from tailrace.sql.duckdb.numeric_calls import NUMBER_FUNCTIONS
from tailrace.sql.duckdb.vectorized import PythonFunction, vectorized


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


_TWO = ("VARCHAR", "VARCHAR")

PYTHON_FUNCTIONS: Sequence[PythonFunction] = (
    *NUMBER_FUNCTIONS,
    PythonFunction("upper_other", characters.upper, ("VARCHAR",), "VARCHAR"),
    PythonFunction("lower_other", characters.lower, ("VARCHAR",), "VARCHAR"),
    PythonFunction("casefold_other", characters.casefold, ("VARCHAR",), "VARCHAR"),
    PythonFunction("initcap_text", characters.initcap, ("VARCHAR",), "VARCHAR"),
    PythonFunction("format_text", text_functions.format_text, ("VARCHAR", "VARCHAR[]", "VARCHAR[]"), "VARCHAR"),
    PythonFunction("normalize_other", text_functions.normalized, _TWO, "VARCHAR"),
    PythonFunction("unicode_unescaped", text_functions.unicode_unescaped, ("VARCHAR",), "VARCHAR"),
    PythonFunction("identifier_parts", text_functions.identifier_parts, ("VARCHAR", "BOOLEAN"), "VARCHAR[]"),
    PythonFunction("like_with_escapes", text_functions.like_with_escapes, _TWO, "BOOLEAN"),
    PythonFunction("like_escape", text_functions.like_escape, _TWO, "VARCHAR"),
    PythonFunction("bytes_like", text_functions.bytes_like, ("BLOB", "BLOB"), "BOOLEAN"),
    PythonFunction("encode_bytes", byte_functions.encoded, ("BLOB", "VARCHAR"), "VARCHAR"),
    PythonFunction("decode_text", byte_functions.decoded, _TWO, "BLOB"),
    PythonFunction("bytes_of_text", byte_functions.bytes_of_text, ("VARCHAR",), "BLOB"),
    PythonFunction("text_of_bytes", byte_functions.text_of_bytes, ("BLOB",), "VARCHAR"),
    PythonFunction("byte_at", byte_functions.byte_at, ("BLOB", "INTEGER"), "INTEGER"),
    PythonFunction("with_byte", byte_functions.with_byte, ("BLOB", "INTEGER", "INTEGER"), "BLOB"),
    PythonFunction("bit_at", byte_functions.bit_at, ("BLOB", "BIGINT"), "INTEGER"),
    PythonFunction("with_bit", byte_functions.with_bit, ("BLOB", "BIGINT", "INTEGER"), "BLOB"),
    PythonFunction("bytes_position", byte_functions.position, ("BLOB", "BLOB"), "INTEGER"),
    PythonFunction("bytes_trimmed", byte_functions.trimmed, ("BLOB", "BLOB", "VARCHAR"), "BLOB"),
    PythonFunction("bytes_reversed", lambda data: data[::-1], ("BLOB",), "BLOB"),
    PythonFunction("hash_of", byte_functions.hash_of, ("BLOB", "VARCHAR"), "BLOB"),
    PythonFunction("checksum_crc32", byte_functions.crc32, ("BLOB",), "BIGINT"),
    PythonFunction("checksum_crc32c", byte_functions.crc32c, ("BLOB",), "BIGINT"),
    PythonFunction("signed_integer", byte_functions.signed_integer, ("BLOB", "INTEGER"), "BIGINT"),
    PythonFunction("name_of_text", text_functions.name_of_text, ("VARCHAR",), "VARCHAR"),
    PythonFunction("uuid_microseconds", byte_functions.uuid_microseconds, ("VARCHAR",), "BIGINT"),
    PythonFunction("array_in", array_texts.read_array, ("VARCHAR",), "VARCHAR[]"),
    *(PythonFunction(*one) for one in json_functions.JSON_FUNCTIONS),
)
