"""The functions of texts, bytes and regular expressions that DuckDB calls in Python."""

from collections.abc import Sequence

from tailrace.sql.duckdb.vectorized import PythonFunction
from tailrace.sql.functions import byte_functions, characters, text_functions
from tailrace.sql.functions import regular_expression_functions as regular_expressions

_TWO = ("VARCHAR", "VARCHAR")
_THREE = ("VARCHAR", "VARCHAR", "VARCHAR")

TEXT_FUNCTIONS: Sequence[PythonFunction] = (
    PythonFunction("upper_other", characters.upper, ("VARCHAR",), "VARCHAR"),
    PythonFunction("lower_other", characters.lower, ("VARCHAR",), "VARCHAR"),
    PythonFunction("casefold_other", characters.casefold, ("VARCHAR",), "VARCHAR"),
    PythonFunction("initcap_text", characters.initcap, ("VARCHAR",), "VARCHAR"),
    PythonFunction("format_text", text_functions.format_text, ("VARCHAR", "VARCHAR[]"), "VARCHAR"),
    PythonFunction("quoted_identifier", text_functions.quoted_identifier, ("VARCHAR",), "VARCHAR"),
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
    PythonFunction("similar_pattern", regular_expressions.similar_pattern, _TWO, "VARCHAR"),
    PythonFunction("regexp_is_matched", regular_expressions.is_matched, _THREE, "BOOLEAN"),
    PythonFunction("regexp_first_match", regular_expressions.first_match, _THREE, "VARCHAR[]"),
    PythonFunction("regexp_all_matches", regular_expressions.all_matches, _THREE, "VARCHAR[][]"),
    PythonFunction("regexp_matched_part", regular_expressions.matched_part, _TWO, "VARCHAR"),
    PythonFunction("regexp_replaced", regular_expressions.replaced, (*_TWO, *_TWO), "VARCHAR"),
    PythonFunction(
        "regexp_replaced_from", regular_expressions.replaced_from, (*_THREE, "INTEGER", "INTEGER", "VARCHAR"), "VARCHAR"
    ),
    PythonFunction("regexp_pieces", regular_expressions.split, _THREE, "VARCHAR[]"),
    PythonFunction("regexp_count_of", regular_expressions.count, (*_TWO, "INTEGER", "VARCHAR"), "INTEGER"),
    PythonFunction(
        "regexp_place",
        regular_expressions.place,
        (*_TWO, "INTEGER", "INTEGER", "INTEGER", "VARCHAR", "INTEGER"),
        "INTEGER",
    ),
    PythonFunction(
        "regexp_substring", regular_expressions.substring, (*_TWO, "INTEGER", "INTEGER", "VARCHAR", "INTEGER"), "VARCHAR"
    ),
)
