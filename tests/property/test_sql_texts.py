"""Whatever is sent as SQL is parsed or rejected, with a place in the text; nothing else happens."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import LimitExceededError, SqlError
from tailrace.sql.parse import parse

BEGINNINGS = [
    "SELECT",
    "INSERT INTO t VALUES",
    "UPDATE t SET",
    "DELETE FROM",
    "WITH a AS (",
    "CREATE TABLE t (",
    "CREATE TOPIC a WITH (",
    "ALTER TOPIC a ADD SOURCE b ON INSERT WHERE",
    "CONSUME FROM a",
    "ACK a GROUP",
    "(",
]
SPOKEN = (
    "SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE TOPIC ALTER "
    "DROP ADD SOURCE ON WITH AS ( ) [ ] { } , . ; : :: ? :a 'x' \"q\" 1 2.5 1e NULL TRUE AND OR NOT IN LIKE "
    "BETWEEN CASE WHEN THEN ELSE END JOIN LEFT USING UNION ALL DISTINCT OVER PARTITION WINDOW INTERVAL DATE "
    "TIMESTAMP ARRAY CAST INT TEXT decimal( json -> ->> #> #>> || + - * / % ^ ~ !~ <> = < > @> <@ && | & << >> a "
    "b t chat.messages count( f( CONSUME ACK COMMIT BEGIN ROLLBACK SHOW TOPICS DESCRIBE EXPLAIN CLEAR LATEST UPTO "
    "PARTITIONS WAIT LATERAL UNNEST( EXISTS ANY( IS COLLATE AT TIME ZONE FILTER RETURNING CONFLICT DO NOTHING "
    "RECURSIVE HAVING QUALIFY PIVOT FOR IF PRIMARY KEY DEFAULT e'a\\'' $$x$$ x'00' ' \" -- /* */ \n ROWS "
    "EXTRACT( SUBSTRING( TRIM( TABLESAMPLE FETCH FIRST GROUPING SETS NATURAL CROSS ILIKE SIMILAR TO ESCAPE \x00 é "
    "💥"
)
WORDS = SPOKEN.split(" ")
TEXTS = st.tuples(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(WORDS), max_size=30)).map(
    lambda parts: f"{parts[0]} {' '.join(parts[1])}"
)
LINES = re.compile(r"\r\n|\r|\n")
PLACE = re.compile(r"line (\d+), column (\d+): .+", re.DOTALL)


@settings(max_examples=400, deadline=None)
@given(st.one_of(TEXTS, st.text(max_size=200)))
def test_a_text_is_parsed_or_rejected_with_a_place_in_it(text: str) -> None:
    try:
        statements = parse(text)
    except LimitExceededError:
        return
    except SqlError as error:
        found = PLACE.fullmatch(str(error))
        assert found is not None, str(error)
        line, column = int(found[1]), int(found[2])
        assert (error.line, error.column) == (line, column)
        lines = LINES.split(text)
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
    else:
        for statement in statements:
            assert statement.text in text
            begins = LINES.split(text)[statement.line - 1]
            assert begins[statement.column - 1 :].startswith(LINES.split(statement.text)[0])
