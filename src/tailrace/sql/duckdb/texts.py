"""Texts: the functions and operators of PostgreSQL's chapter "String Functions and Operators"."""

from collections.abc import Sequence

from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.duckdb.output_texts import cast_text, output_text
from tailrace.sql.duckdb.templates import RowFunction, Template, expanded


def _concat(arguments: Sequence[str], call: Call) -> str:
    return f"concat({', '.join(_outputs(arguments, call))})"


def _concat_ws(arguments: Sequence[str], call: Call) -> str:
    return f"concat_ws({', '.join(_outputs(arguments, call))})"


def _outputs(arguments: Sequence[str], call: Call) -> list[str]:
    return [output_text(text, one.type) for text, one in zip(arguments, call.arguments, strict=True)]


def _joined(arguments: Sequence[str], call: Call) -> str:
    """Join two values of which one is not a text."""
    left, right = (cast_text(text, one.type) for text, one in zip(arguments, call.arguments, strict=True))
    return f"({left} || {right})"


def _format(arguments: Sequence[str], call: Call) -> str:
    """Join the pieces of a plain format; one with places and widths is read as the query runs."""
    values = _outputs(arguments, call)[1:]
    pieces = _plain_pieces(call, values)
    if pieces is not None:
        return f"concat({', '.join(pieces)})" if pieces else "''"
    return f"format_text({arguments[0]}, [{', '.join(values)}]::VARCHAR[])"


def _plain_pieces(call: Call, values: Sequence[str]) -> list[str] | None:
    given = call.arguments[0]
    if not isinstance(given, Constant) or not isinstance(given.value, str):
        return None
    first, *rest = given.value.replace("%%", "\0").split("%")
    if len(rest) != len(values) or any(not piece.startswith("s") for piece in rest):
        return None
    pieces = [_literal(first)] if first else []
    for value, piece in zip(values, rest, strict=True):
        pieces.append(value)
        if piece[1:]:
            pieces.append(_literal(piece[1:]))
    return pieces


def _literal(text: str) -> str:
    return "'" + text.replace("\0", "%").replace("'", "''") + "'"


def _quoted_literal(arguments: Sequence[str], call: Call) -> str:
    return f"quoted_literal({cast_text(arguments[0], call.arguments[0].type)})"


def _array_to_string(arguments: Sequence[str], call: Call) -> str:
    item = output_text("item", call.arguments[0].type.element)
    items = f"list_transform({arguments[0]}, lambda item: {item})"
    separator = call.arguments[1]
    if len(arguments) == 2 and isinstance(separator, Constant) and separator.value is not None:
        # DuckDB's is null if all items are.
        return f"coalesce(array_to_string({items}, {arguments[1]}), CASE WHEN {arguments[0]} IS NOT NULL THEN '' END)"
    name = "joined_items" if len(arguments) == 2 else "joined_items_with_null"
    return f"{name}({', '.join([items, *arguments[1:]])})"


def _normalized(arguments: Sequence[str], call: Call) -> str:
    text, form = (*arguments, "'NFC'")[:2]
    return f"normalized_text({text}, {form})"


TEXTS: dict[str, Template] = expanded(
    {
        "text || text": "({0} || {1})",
        "text || anynonarray": _joined,
        "anynonarray || text": _joined,
        "concat(any)": _concat,
        "concat_ws(text, any)": _concat_ws,
        "format(text)": _format,
        "format(text, any)": _format,
        "lower(text)": "lower_text({0})",
        "upper(text)": "upper_text({0})",
        "casefold(text)": "casefold_text({0})",
        "initcap(text)": "initcap_text({0})",
        "length(text)": "CAST(length({0}) AS INTEGER)",
        "char_length(text)": "CAST(length({0}) AS INTEGER)",
        "character_length(text)": "CAST(length({0}) AS INTEGER)",
        "length(bpchar)": "CAST(length(rtrim({0}, ' ')) AS INTEGER)",
        "char_length(bpchar)": "CAST(length(rtrim({0}, ' ')) AS INTEGER)",
        "character_length(bpchar)": "CAST(length(rtrim({0}, ' ')) AS INTEGER)",
        "octet_length(text)": "CAST(strlen({0}) AS INTEGER)",
        "octet_length(bpchar)": "CAST(strlen({0}) AS INTEGER)",
        "bit_length(text)": "CAST(8 * strlen({0}) AS INTEGER)",
        "btrim(text)": "trim({0}, ' ')",
        "ltrim(text)": "ltrim({0}, ' ')",
        "rtrim(text)": "rtrim({0}, ' ')",
        "btrim(text, text)": "trim({0}, {1})",
        "ltrim(text, text)": "ltrim({0}, {1})",
        "rtrim(text, text)": "rtrim({0}, {1})",
        "substring(text, int4)": "substring_from({0}, {1})",
        "substr(text, int4)": "substring_from({0}, {1})",
        "substring(text, int4, int4)": "substring_for({0}, {1}, {2})",
        "substr(text, int4, int4)": "substring_for({0}, {1}, {2})",
        "left(text, int4)": "left({0}, {1})",
        "right(text, int4)": "right_text({0}, {1})",
        "position(text, text)": "CAST(strpos({0}, {1}) AS INTEGER)",
        "strpos(text, text)": "CAST(strpos({0}, {1}) AS INTEGER)",
        "replace(text, text, text)": "replace_text({0}, {1}, {2})",
        "translate(text, text, text)": "translate({0}, {1}, {2})",
        "overlay(text, text, int4)": "overlay_text({0}, {1}, {2}, length({1}))",
        "overlay(text, text, int4, int4)": "overlay_text({0}, {1}, {2}, {3})",
        "repeat(text, int4)": "repeat_text({0}, {1})",
        "reverse(text)": "reverse_text({0})",
        "lpad(text, int4)": "lpad_text({0}, {1}, ' ')",
        "rpad(text, int4)": "rpad_text({0}, {1}, ' ')",
        "lpad(text, int4, text)": "lpad_text({0}, {1}, {2})",
        "rpad(text, int4, text)": "rpad_text({0}, {1}, {2})",
        "split_part(text, text, int4)": "split_part_text({0}, {1}, {2})",
        "string_to_array(text, text)": "text_to_array({0}, {1})",
        "string_to_array(text, text, text)": "text_to_array_with_null({0}, {1}, {2})",
        "array_to_string(anyarray, text)": _array_to_string,
        "array_to_string(anyarray, text, text)": _array_to_string,
        "ascii(text)": "ascii({0})",
        "chr(int4)": "character_of({0})",
        "starts_with(text, text)": "starts_with({0}, {1})",
        "text ^@ text": "starts_with({0}, {1})",
        "to_hex(int4)": "lower(to_hex(CAST({0} AS BIGINT) & 4294967295))",
        "to_hex(int8)": "lower(to_hex({0}))",
        "to_bin(int4)": "to_binary(CAST({0} AS BIGINT) & 4294967295)",
        "to_bin(int8)": "to_binary({0})",
        "to_oct(int4)": "format('{{:o}}', CAST({0} AS BIGINT) & 4294967295)",
        "quote_literal(text)": "quoted_literal({0})",
        "quote_literal(anyelement)": _quoted_literal,
        "quote_nullable(text)": "coalesce(quoted_literal({0}), 'NULL')",
        "quote_nullable(anyelement)": lambda arguments, call: f"coalesce({_quoted_literal(arguments, call)}, 'NULL')",
        "quote_ident(text)": "quoted_identifier({0})",
        "normalize(text, text)": _normalized,
        "is_normalized(text, text)": lambda arguments, call: f"({arguments[0]} = {_normalized(arguments, call)})",
        "unistr(text)": "unicode_unescaped({0})",
        "parse_ident(text, bool)": lambda arguments, _: f"identifier_parts({arguments[0]}, {(*arguments, 'true')[1]})",
        "pg_typeof(any)": lambda _, call: _literal(str(call.arguments[0].type)),
        "text ~<~ text": "({0} < {1})",
        "text ~<=~ text": "({0} <= {1})",
        "text ~>~ text": "({0} > {1})",
        "text ~>=~ text": "({0} >= {1})",
    }
)

TEXT_ROWS: dict[str, RowFunction] = {
    "string_to_table(text, text)": RowFunction("text_to_array({0}, {1})"),
    "string_to_table(text, text, text)": RowFunction("text_to_array_with_null({0}, {1}, {2})"),
}
