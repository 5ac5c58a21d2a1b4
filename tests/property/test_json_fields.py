"""Fields of JSON that the compiled loop is certain of are those that the exact functions find, whatever the text is."""

import json
from functools import cache

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.functions.json_functions import of_records, text_at_path
from tailrace.sql.select.json_fields import JsonFieldReader, JsonKernels, RecordUse
from tailrace.sql.select.topics import FieldReader

KEYS = ("k", "x", "long key", "ü")
RECORD_TEXT_AT = of_records(text_at_path)
READER = JsonFieldReader(RecordUse(KEYS, is_read_otherwise=False))

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


@cache
def kernels() -> JsonKernels:
    reader = FieldReader()
    reader.load()
    found = reader.json_kernels()
    assert found is not None
    return found


@given(st.lists(st.none() | written | broken | mutated(), min_size=1, max_size=20), st.integers(0, 3))
def test_fields_are_those_of_the_exact_functions(texts: list[str | None], hidden: int) -> None:
    column = pa.array([*(["{}"] * hidden), *texts], pa.string()).slice(hidden)
    left, (doubtful, *fields) = READER.columns(column, kernels())
    for row, text in enumerate(texts):
        if doubtful[row].as_py():
            assert left[row].as_py() == text
            continue
        assert left[row].as_py() is None
        for key, field in zip(KEYS, fields, strict=True):
            assert field[row].as_py() == exact(text, key), (text, key)


def exact(text: str | None, key: str) -> str | None:
    try:
        return None if text is None else RECORD_TEXT_AT(text, [f".{key}"])
    except AnalysisError as error:
        raise AssertionError(f"{text!r} is an error: {error}") from error


def test_usual_documents_are_certain() -> None:
    texts = ['{"k":"v","x":12,"a":{"b":[1.5,{}]}}', ' { "x" : -3 , "k" : true } ', "{}", '{"k":null}', '{"ü":"ö","y":"\\n"}']
    left, (doubtful, k, x, _, umlaut) = READER.columns(pa.array(texts), kernels())
    assert doubtful.to_pylist() == [False] * 5
    assert left.null_count == 5
    assert k.to_pylist() == ["v", "true", None, None, None]
    assert x.to_pylist() == ["12", "-3", None, None, None]
    assert umlaut.to_pylist() == [None, None, None, None, "ö"]


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
    _, (doubtful, *_) = READER.columns(pa.array(texts), kernels())
    assert doubtful.to_pylist() == [True] * len(texts)
