"""Values inside of the text of records, which DuckDB extracts itself as long as it reads them as PostgreSQL does."""

from collections.abc import Iterator

import pytest

from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.types import SqlType
from tests.differential.answers import Answer, Failure
from tests.differential.engine import DuckDbEngine
from tests.differential.postgres import Postgres, running_postgres

TEXTS = (
    '{"k": 1}', '{"k": "x"}', '{"k": null}', '{"k": true}', '{"k": false}', '{"k": [1, 2.50]}', '{"k": {"b": 1.10, "a": 2}}',
    '{"k": 1.10}', '{"k":1.10}', '{"k": 1.5, "z": 2}', '{"z": 2, "k" : 1.5 }', '{"k": 1e3}', '{"k": 1E-3}', '{"k": -0}',
    '{"k": -0.0}', '{"k": 0.1}', '{"k": 12345678901234567890123}', '{"k": 1.123456789012345678901234567890}', '{"k": 1e400}',
    '{"k": 1e-400}', '{"k": 9223372036854775807}', '{"k": 9223372036854775808}', '{"k": -9223372036854775809}',
    '{"k": 2147483648}', '{"k": 32768}', '{"k": 1, "k": 2}', '{"k": 1.5, "k": 1.50}', '{"k": {"k": 1.50}, "a": 1.5}',
    '{"a": {"k": 1.5}, "k": 1.50}', '{"a": {"k": 7}}', '{"\\u006b": 1}', '{"k": 1, "\\u006b": 2}', '{"k": "\\u0041"}',
    '{"k": "\\u0000"}', '{"k": 1, "z": "\\u0000"}', '{"k": "\\\\u0000"}', '{"k": "\\ud83d\\ude00"}', '{"k": "\\ud83d"}',
    '{"k": "a\\nb\\t\\"c\\" \\/ \\\\"}', '{"k": "é😀"}', '{"é": 5, "k": 6}', '{"\\u00e9": 5}', '{"k": 1,}', '{"k": [1,]}',
    '{"k": 1, }', '{"k": 1,\n}', '{"k": ",]"}', '{"k": NaN}', '{"k": 1, "z": NaN}', '{"k": -Infinity}',
    '{"k": 1, "z": [inf]}', '{"k": "NaN"}', '{"k": "nan, inf: info"}', '{"k": ": nan"}', '{"k": ", inf"}',
    '{"k": "Infinity"}', '{"k": "1.50"}', '{"k": " 12 "}', '{"k": "12abc"}', '{"k": "1_000"}', '{"k": "0x10"}',
    '{"k": "1e3"}', '{"k": ""}', '{"k": "-"}', '{"k": "{"}', '{"k": "[1, 2]"}', '{"k": "1.2.3"}', '{"k": "e"}',
    '{"k": "007"}', '{"k": "+5"}', '{"k": "5."}', '{"k": ".5"}', '[{"k": 1}]', '["k", 2.50, {"k": 3}]', '[]', '{}', '"k"',
    '"k: 1"', "12", "1.50", "null", "true", "nan", "", " ", "x", "{", '{"k"', "{k: 1}", "{'k': 1}", '{"k": 01}', '{"k": .5}',
    '{"k": +1}', '{"k": 1} x', '{"k": 1}{"k": 2}', '\ufeff{"k": 1}', ' \n{"k"\t:\r\n 1.50 } ', '{"k": "a\nb"}', '{"K": 1}',
    '{"a\\"k": 1.5, "k": 1.50}', '{"k\\"": 1}', '{"x": "\\"k\\": 5", "k": 6.50}', '{"k": {"k": {"k": 1.0}}}',
    '{"a": {"b": {"c": 1.10}}, "k": [[1.10]]}', '{"a": {"b": [10, 20.50, {"c": "x"}]}}', '{"a": "scalar", "k": [1]}',
    '{"0": "zero", "k": 1}',
)  # fmt: skip

EXPRESSIONS = (
    "-> 'k'", "->> 'k'", "-> 'k' -> 'b'", "-> 'k' ->> 'b'", "-> 0", "->> 1", "-> 'k' -> 0", "-> 'k' ->> -1",
    "-> 'a' -> 'b' ->> 'c'", "->> 'é'", "-> 'a' -> 'b' -> 1", "-> 'a' ->> 0", "#> '{k}'", "#>> '{k}'", "#>> '{a,b,c}'",
    "#>> '{a,b,1}'", "#> '{k,0}'", "#>> '{0}'", "#> '{}'", "#>> '{a,b,2,c}'", "->> 'zzz'", "->> ''", "->> 'a\"k'",
    "-> 'k' -> 'k' ->> 'k'",
)  # fmt: skip

DEPTHS = (100, 400, 5_000, 200_000)
CASTS = ("int2", "int4", "int8", "float8", "numeric", "bool", "text")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as found:
        found.run("CREATE TABLE records (id integer, value text)")
        for at, text in enumerate(TEXTS):
            quoted = text.replace("'", "''")
            found.run(f"INSERT INTO records VALUES ({at}, '{quoted}')")
        found.run(
            "CREATE FUNCTION as_json(t text) RETURNS jsonb LANGUAGE plpgsql AS"
            " $$BEGIN RETURN t::jsonb; EXCEPTION WHEN OTHERS THEN RETURN NULL; END$$"
        )
        found.run("CREATE TABLE deep (id integer, value text)")
        for depth in DEPTHS:
            found.run(f"INSERT INTO deep VALUES ({depth}, repeat('{{\"a\":', {depth}) || '1.50' || repeat('}}', {depth}))")
        yield found


@pytest.fixture(scope="module")
def engine(postgres: Postgres) -> DuckDbEngine:
    made = DuckDbEngine(postgres)
    columns = [RelationColumn("id", SqlType("int4")), RelationColumn("value", SqlType("text"), is_json_text=True)]
    for name in ("records", "deep"):
        made.add_table(postgres, name, columns)
    return made


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_value_in_record_is_that_of_jsonb(postgres: Postgres, engine: DuckDbEngine, expression: str) -> None:
    cast = "" if ">>" in expression else "::text"
    expected = postgres.run(f"SELECT id, (as_json(value) {expression}){cast} FROM records ORDER BY id")
    found = engine.run(f"SELECT id, (value {expression}){cast} FROM records ORDER BY id")
    assert isinstance(expected, Answer)
    assert isinstance(found, Answer), found
    assert _by_text(found) == _by_text(expected)


@pytest.mark.parametrize("operator", ["->>", "->"])
@pytest.mark.parametrize("target", CASTS)
def test_cast_of_value_in_record_is_that_of_jsonb(postgres: Postgres, engine: DuckDbEngine, target: str, operator: str) -> None:
    for at, text in enumerate(TEXTS):
        expected = postgres.run(f"SELECT (as_json(value) {operator} 'k')::{target} FROM records WHERE id = {at}")
        found = engine.run(f"SELECT (value {operator} 'k')::{target} FROM records WHERE id = {at}")
        if isinstance(found, Failure) and found.sqlstate == "0A000":
            continue
        if isinstance(expected, Answer):
            assert isinstance(found, Answer), (text, expected, found)
            assert [list(map(str, row)) for row in found.rows] == [list(map(str, row)) for row in expected.rows], text
        else:
            assert not isinstance(found, Answer), (text, expected, found)
            assert (found.sqlstate or "")[:2] == (expected.sqlstate or "")[:2], (text, expected, found)


def _by_text(answer: Answer) -> dict[str, object]:
    return {TEXTS[row[0]]: row[1] for row in answer.rows}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "expression",
    [
        "value -> 'a'", "value ->> 'a'", "value -> 'a' ->> 'a'", "value -> 'b'", "value::jsonb", "value::jsonb::text",
        "value::jsonb = '{}'", "value IS JSON", "value::json -> 'a'", "value::jsonb @> value::jsonb", "value::jsonb || '{}'",
        "jsonb_pretty(value::jsonb)", "jsonb_strip_nulls(value::jsonb)",
    ],
)  # fmt: skip
def test_deep_document_is_answered_or_refused(engine: DuckDbEngine, depth: int, expression: str) -> None:
    found = engine.run(f"SELECT ({expression})::text AS found FROM deep WHERE id = {depth}")
    assert isinstance(found, Answer) or found.sqlstate == "54001", found
