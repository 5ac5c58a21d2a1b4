"""Bytes and UUIDs: PostgreSQL's chapters "Binary String Functions and Operators" and "UUID Functions"."""

from collections.abc import Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.duckdb.templates import Template, expanded


def _encode(arguments: Sequence[str], call: Call) -> str:
    name = _constant_text(call, 1)
    if name == "hex":
        return f"lower(hex({arguments[0]}))"
    if name == "base64":
        return f"base64_text({arguments[0]})"
    return f"encode_bytes({arguments[0]}, {arguments[1]})"


def _in_utf8(template: str) -> Template:
    """Return a template of a function that names an encoding. Texts are UTF-8, so no other is needed."""

    def render(arguments: Sequence[str], call: Call) -> str:
        name = _constant_text(call, 1)
        if name is None or name.lower().replace("-", "").replace("_", "") not in ("utf8", "unicode"):
            raise UnsupportedError("only the encoding UTF8 is supported", call.location)
        return template.format(*arguments)

    return render


def _constant_text(call: Call, at: int) -> str | None:
    given = call.arguments[at]
    return given.value if isinstance(given, Constant) and isinstance(given.value, str) else None


BINARY_STRINGS: dict[str, Template] = expanded(
    {
        "bytea || bytea": "({0} || {1})",
        "length(bytea)": "CAST(octet_length({0}) AS INTEGER)",
        "octet_length(bytea)": "CAST(octet_length({0}) AS INTEGER)",
        "bit_length(bytea)": "CAST(8 * octet_length({0}) AS INTEGER)",
        "bit_count(bytea)": "CAST(strlen(replace(to_binary_digits({0}), '0', '')) AS BIGINT)",
        "substring(bytea, int4)": "bytes_from({0}, {1})",
        "substr(bytea, int4)": "bytes_from({0}, {1})",
        "substring(bytea, int4, int4)": "bytes_for({0}, {1}, {2})",
        "substr(bytea, int4, int4)": "bytes_for({0}, {1}, {2})",
        "overlay(bytea, bytea, int4)": "overlay_bytes({0}, {1}, {2}, CAST(octet_length({1}) AS INTEGER))",
        "overlay(bytea, bytea, int4, int4)": "overlay_bytes({0}, {1}, {2}, {3})",
        "position(bytea, bytea)": "bytes_position({0}, {1})",
        "btrim(bytea, bytea)": "bytes_trimmed({0}, {1}, 'both')",
        "ltrim(bytea, bytea)": "bytes_trimmed({0}, {1}, 'left')",
        "rtrim(bytea, bytea)": "bytes_trimmed({0}, {1}, 'right')",
        "reverse(bytea)": "bytes_reversed({0})",
        "get_byte(bytea, int4)": "byte_at({0}, {1})",
        "set_byte(bytea, int4, int4)": "with_byte({0}, {1}, {2})",
        "get_bit(bytea, int8)": "bit_at({0}, {1})",
        "set_bit(bytea, int8, int4)": "with_bit({0}, {1}, {2})",
        "encode(bytea, text)": _encode,
        "decode(text, text)": "decode_text({0}, {1})",
        "convert_from(bytea, name)": _in_utf8("text_of_bytes({0})"),
        "convert_to(text, name)": _in_utf8("encode({0})"),
        "length(bytea, name)": _in_utf8("CAST(length(text_of_bytes({0})) AS INTEGER)"),
        "md5(text)": "md5({0})",
        "md5(bytea)": "md5({0})",
        "sha224(bytea)": "hash_of({0}, 'sha224')",
        "sha256(bytea)": "unhex(sha256({0}))",
        "sha384(bytea)": "hash_of({0}, 'sha384')",
        "sha512(bytea)": "hash_of({0}, 'sha512')",
        "crc32(bytea)": "checksum_crc32({0})",
        "crc32c(bytea)": "checksum_crc32c({0})",
        "bytea ~~ bytea": "bytes_like({0}, {1})",
        "bytea !~~ bytea": "(NOT bytes_like({0}, {1}))",
        "gen_random_uuid()": "uuid()",
        "uuidv4()": "uuid()",
        "uuidv7()": "uuidv7()",
        "uuid_extract_version(uuid)": "uuid_version({0})",
        "uuid_extract_timestamp(uuid)": "uuid_timestamp({0})",
    }
)
