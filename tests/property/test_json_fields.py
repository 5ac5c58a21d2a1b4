"""Fields of JSON that the compiled loop is certain of are those that the exact functions find, whatever the text is."""

import json
import re
from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import Cursor
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.model.text import text_or_hex
from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.functions.json_functions import of_records, text_at_path
from tailrace.sql.select.json_fields import DOUBTFUL, VALUE, JsonFieldReader, RecordUse
from tailrace.sql.select.topics import FieldReader
from tailrace.wire.arrow_decoding import decode_to_arrow
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.records import encode_batch

KEYS = ("k", "x", "long key", "ü")
RECORD_TEXT_AT = of_records(text_at_path)
INTEGERS = ("x", "ü")
USE = RecordUse(KEYS, is_read_otherwise=False, integers=INTEGERS)
PLAIN_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=6
)
documents = st.dictionaries(st.sampled_from((*KEYS, "other", "")), values, max_size=5)
written = st.builds(
    lambda document, ascii_only, indent: json.dumps(document, ensure_ascii=ascii_only, indent=indent),
    documents,
    st.booleans(),
    st.sampled_from((None, 0, 1)),
)
SYNTAX = ("{", "}", "[", "]", ",", ":", '"', " ", "\t", "\x01", '"k":', '"x":1', '"k":"v"', "\\u006b", "\\n", '\\"')
WORDS = ("-0", "01", "1.5", "1e5", "-1", "true", "false", "null", "tru", "nan", "NaN", "Infinity")
pieces = st.sampled_from((*SYNTAX, *WORDS))
broken = st.lists(pieces, max_size=12).map("".join)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A document with some characters changed, removed or doubled."""
    text = draw(written)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from(("", ",", '"', "}", "\\", "0", " ", text[:at])))
            + text[at + draw(st.integers(0, 2)) :]
        )
    return text


integers = st.integers() | st.integers(-(10**18), 10**18) | st.integers(-20, 20)
numbered = st.builds(
    lambda number, form: form % number,
    integers | integers.map(lambda number: f"{number:+d}") | integers.map(lambda number: f" {number:05d}"),
    st.sampled_from(('{"x":%s}', '{"x":"%s"}', '{"x":"%s ","ü":1}', '{ "ü" : "%s" }')),
)
texts = written | broken | mutated() | numbered
long_strings = st.builds(
    lambda size, tail, key: f'{{"{key}":"{"p" * size}{tail}","x":7}}'.encode(),
    st.integers(0, 200),
    st.sampled_from(("", "ü", "\\n", "\\", '"', "\x1f")),
    st.sampled_from(("k", "other")),
)
not_text = st.builds(
    lambda text, at, byte: text[:at] + byte + text[at:], texts.map(str.encode), st.integers(0, 20), st.binary(max_size=2)
)
stored_values = st.none() | texts.map(str.encode) | long_strings | not_text


@cache
def compiled() -> FieldReader:
    reader = FieldReader()
    reader.load()
    assert reader.json_kernels() is not None
    return reader


def read(batches: Sequence[Sequence[bytes | None]], use: RecordUse = USE) -> pa.Table:
    """Return the columns of these values, which are stored in batches."""
    stored = [
        PlacedBatch(Cursor(0), bytes(encode_batch([Record(None, value, (), 0) for value in values]))) for values in batches
    ]
    fields = compiled()
    derived = JsonFieldReader(use, fields.json_kernels)
    decoded = decode_to_arrow(
        stored,
        ["value"] if use.is_read_otherwise else [],
        partition=0,
        limits=DEFAULT_LIMITS,
        read_fields=fields,
        derived=derived,
    )
    table = pa.Table.from_batches(decoded)
    table.validate(full=True)
    return table


@given(st.lists(st.lists(stored_values, min_size=1, max_size=12), min_size=1, max_size=3), st.booleans())
def test_fields_are_those_of_the_exact_functions(batches: list[list[bytes | None]], is_read_otherwise: bool) -> None:
    use = USE._replace(is_read_otherwise=is_read_otherwise)
    rows = read(batches, use).to_pylist()
    shown = [text_or_hex(value) for values in batches for value in values]
    assert len(rows) == len(shown)
    for row, text in zip(rows, shown, strict=True):
        is_doubtful = row[DOUBTFUL]
        assert row[VALUE] == (text if is_doubtful or is_read_otherwise else None)
        for key, name in use.columns.items():
            assert row[name] == (None if is_doubtful else exact(text, key)), (text, key)
        for key, name in use.integer_columns.items():
            field = row[use.columns[key]]
            is_plain = field is not None and PLAIN_INTEGER.fullmatch(field)
            assert row[name] == (int(field) if is_plain else None), (text, key)


def exact(text: str | None, key: str) -> str | None:
    try:
        return None if text is None else RECORD_TEXT_AT(text, [f".{key}"])
    except AnalysisError as error:
        raise AssertionError(f"{text!r} is an error: {error}") from error


def test_usual_documents_are_certain() -> None:
    texts = ['{"k":"v","x":12,"a":{"b":[1.5,{}]}}', ' { "x" : -3 , "k" : true } ', "{}", '{"k":null}', '{"ü":"ö","y":"\\n"}']
    table = read([[*(text.encode() for text in texts), None]])
    assert table.column(DOUBTFUL).to_pylist() == [False] * 6
    assert table.column(VALUE).null_count == 6
    k, x, _, umlaut = (table.column(USE.columns[key]).to_pylist() for key in KEYS)
    assert k == ["v", "true", None, None, None, None]
    assert x == ["12", "-3", None, None, None, None]
    assert umlaut == [None, None, None, None, "ö", None]
    assert table.column(USE.integer_columns["x"]).to_pylist() == [12, -3, None, None, None, None]


@pytest.mark.parametrize("size", [*range(70), *range(120, 135), 300])
def test_strings_of_any_length_end_where_they_end(size: int) -> None:
    text = json.dumps({"other": "p" * size, "k": "q" * size, "x": size})
    for following in (b"{}", b"[" * 100):
        k, x = (read([[text.encode(), following]]).column(USE.columns[key])[0].as_py() for key in ("k", "x"))
        assert (k, x) == ("q" * size, str(size))


def test_values_that_are_not_text_are_left_to_the_exact_functions() -> None:
    value = b'{"k":"\xff","x":1}'
    table = read([[value, '{"k":"ü"}'.encode()]])
    assert table.column(DOUBTFUL).to_pylist() == [True, False]
    assert table.column(VALUE).to_pylist() == ["\\x" + value.hex(), None]
    assert table.column(USE.columns["k"]).to_pylist() == [None, "ü"]
    assert table.column(USE.columns["x"]).to_pylist() == [None, None]


def test_what_is_not_certain_is_left_to_the_exact_functions() -> None:
    texts = [
        '{"k":1.50}',
        '{"k":"a\\n"}',
        '{"k":1,"k":2}',
        '{"k":{}}',
        "[1]",
        "7",
        "",
        "{",
        '{"k":1}x',
        '{"k":1,}',
        '{"\\u006b":1}',
    ]
    texts += ['{"a":1e5}', '{"k":-0}', '{"k":01}', '{"a":NaN}', '{"a":"\t"}', '{"a":"\\u0000"}', "[" * 100 + "]" * 100]
    assert read([[text.encode() for text in texts]]).column(DOUBTFUL).to_pylist() == [True] * len(texts)
