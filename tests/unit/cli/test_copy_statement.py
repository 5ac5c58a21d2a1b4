"""COPY in PostgreSQL's syntax becomes what the client does."""

from typing import Any

import pytest

from tailrace.cli.copy import CopyOrder
from tailrace.cli.sql.copy_statement import parse_copy
from tailrace.cli.sql.script import is_copy
from tailrace.model.errors import SqlError, SqlSyntaxError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COPY orders FROM 'o.csv'", CopyOrder("orders", True, "o.csv", header=False)),
        ("copy a.b.c.d TO 'o.parquet';", CopyOrder("a.b.c.d", False, "o.parquet", header=False)),
        (
            'COPY "my-shop".orders (id, "Total") FROM \'o.csv\'',
            CopyOrder("my-shop.orders", True, "o.csv", ("id", "Total"), header=False),
        ),
        (
            "COPY orders FROM 'o' WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL '\\N', QUOTE '\"', ESCAPE '\\')",
            CopyOrder("orders", True, "o", format="csv", header="skip", delimiter=";", null="\\N", escape="\\"),
        ),
        ("COPY orders FROM 'o.csv' (HEADER match)", CopyOrder("orders", True, "o.csv", header="match")),
        ("COPY orders FROM 'o.csv' CSV HEADER", CopyOrder("orders", True, "o.csv", format="csv", header="skip")),
        ("COPY orders TO STDOUT (FORMAT csv)", CopyOrder("orders", False, "-", format="csv", header=False)),
        (
            "COPY orders FROM 'o.csv' (ON_ERROR ignore, REJECT_FILE 'bad.csv', START_LINE 5)",
            CopyOrder("orders", True, "o.csv", header=False, on_error="skip", reject_file="bad.csv", start_line=5),
        ),
        (
            "-- all\nCOPY (SELECT ')' AS a, (1) FROM t WHERE true) TO 'o.csv'",
            CopyOrder("SELECT ')' AS a, (1) FROM t WHERE true", False, "o.csv", header=False),
        ),
    ],
)
def test_a_statement_is_read(text: str, expected: CopyOrder) -> None:
    assert is_copy(text)
    assert parse_copy(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COPY orders FROM PROGRAM 'cat x'", "PROGRAM is not supported"),
        ("COPY orders FROM 'o.csv' WHERE id > 1", "WHERE is not supported"),
        ("COPY orders FROM 'o.csv' (FORMAT binary)", "use csv or parquet"),
        ("COPY orders FROM 'o.csv' (FORCE_NULL (a))", "option FORCE_NULL of COPY is not supported"),
        ("COPY orders TO 'o.csv' (HEADER match)", "it can be true, false$"),
        ("COPY orders FROM 'o.csv' (ENCODING 'latin1')", "files are UTF-8"),
        ("COPY orders FROM STDIN", "add WITH .FORMAT csv"),
        ("COPY orders FROM 'o.csv' (REJECT_FILE 'x')", "add ON_ERROR ignore"),
        ("COPY (SELECT 1 TO 'o.csv'", "no closing bracket"),
        ("COPY", "expected COPY and the name"),
    ],
)
def test_what_is_not_supported_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_copy(text)


@pytest.mark.parametrize(
    ("text", "line", "column"), [("COPY orders FORM 'x'", 1, 13), ("COPY\n(SELECT 1, 2, 3)\n TOO 'x'", 3, 2)]
)
def test_a_syntax_error_points_at_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(SqlSyntaxError) as error:
        parse_copy(text)
    assert (error.value.line, error.value.column) == (line, column)


@pytest.mark.parametrize("text", ["SELECT 1", "COPY a TO 'x'; COPY b TO 'y'", "BEGIN; COPY a TO 'x'; COMMIT", ""])
def test_other_texts_are_for_the_server(text: Any) -> None:
    assert not is_copy(text)
