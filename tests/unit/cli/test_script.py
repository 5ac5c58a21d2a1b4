"""Where statements end, and which of them go to the server together."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.cli.sql.script import (
    RequestGrouper,
    ScriptStatement,
    SqlRequest,
    StatementReader,
    explain_sql_error,
    is_one_query,
)
from tailrace.model.errors import SqlError, SqlSyntaxError, UnknownTopicError
from tailrace.sql.grammar.lexer import read_tokens

PIECES = st.sampled_from(
    ["'", "''", '"', "e'", "\\'", "\\\\", "--", "/*", "*/", ";", "\n", " ", "a", "b.c", "1", "$$", "$t$", "(", "?", ":x", "é"]
)


def read(text: str) -> list[ScriptStatement]:
    reader = StatementReader()
    found = [statement for line in text.splitlines(keepends=True) for statement in reader.feed(line)]
    return found + reader.rest()


def requests(text: str) -> list[str]:
    gathered = RequestGrouper()
    found = [request for statement in read(text) for request in gathered.add(statement)]
    return [request.text for request in found + gathered.rest()]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ';'",
        "SELECT 'it''s;'",
        'SELECT ";"',
        "SELECT 1 -- ; no end",
        "SELECT /* ; /* ; */ ; */ 1",
        "SELECT $$ ; $$",
        "SELECT $a$ ; $$ ; $a$",
        r"SELECT e'\';'",
        "SELECT 'over\ntwo; lines'",
    ],
)
def test_a_semicolon_in_quotes_or_comments_ends_nothing(text: str) -> None:
    assert [statement.text for statement in read(f"{text};")] == [f"{text};"]
    assert [statement.text for statement in read(f"{text}\n; b")] == [f"{text}\n;", " b"]


def test_a_backslash_is_a_letter_in_plain_quotes() -> None:
    assert [statement.text for statement in read(r"SELECT '\'; b")] == [r"SELECT '\';", " b"]


def test_space_and_comments_alone_are_no_statement() -> None:
    assert read(" ; -- nothing\n;; /* nothing */\n") == []


def test_statements_know_where_they_begin() -> None:
    places = [(statement.line, statement.column) for statement in read("a; b;\n\nc\n; d")]
    assert places == [(1, 1), (1, 3), (1, 6), (4, 2)]


def test_what_is_between_begin_and_commit_is_one_request() -> None:
    text = "a;\nBEGIN;\nb;\nc;\nCOMMIT WORK;\nd;"
    assert requests(text) == ["a;", "\nBEGIN;\nb;\nc;\nCOMMIT WORK;", "\nd;"]


def test_rollback_ends_a_transaction_too() -> None:
    assert requests("start transaction; a; rollback; b;") == ["start transaction; a; rollback;", " b;"]


def test_an_ack_by_its_other_name_ends_no_transaction() -> None:
    assert requests("BEGIN; COMMIT a.b GROUP 'g' UPTO OFFSET 1; COMMIT;") == [
        "BEGIN; COMMIT a.b GROUP 'g' UPTO OFFSET 1; COMMIT;"
    ]


def test_a_transaction_without_its_commit_is_left_to_the_server() -> None:
    assert requests("BEGIN; a;") == ["BEGIN; a;"]


def test_a_request_begins_where_its_first_statement_does() -> None:
    gathered = RequestGrouper()
    (found,) = [request for statement in read("BEGIN;\na;\nCOMMIT;") for request in gathered.add(statement)]
    assert found == SqlRequest("BEGIN;\na;\nCOMMIT;", 1, 1)


@given(st.lists(PIECES, max_size=25).map("".join))
@example(":x$$;''")
@example("e'\\';\\\\")
def test_the_server_sees_the_same_statements(text: str) -> None:
    try:
        tokens = read_tokens(text)
    except SqlSyntaxError:
        return
    kinds = [token.kind for token in tokens]
    ends = [place for place, kind in enumerate(kinds) if kind == "end"]
    parts = [kinds[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, len(kinds)], strict=True)]
    assert len(read(text)) == len([part for part in parts if part])


@given(st.lists(PIECES, max_size=25).map("".join))
@example("/*'*/;'")
def test_nothing_of_a_text_is_lost_but_what_is_between_statements(text: str) -> None:
    lines = text.splitlines(keepends=True)
    at = 0
    for statement in read(text):
        place = sum(map(len, lines[: statement.line - 1])) + statement.column - 1
        assert text.startswith(statement.text, place)
        assert read(text[at:place]) == []
        at = place + len(statement.text)
    assert read(text[at:]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", True),
        ("-- all of it\nselect ';' ;  ", True),
        ("VALUES (1)", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", False),
        ("SELECT 1; SELECT 2", False),
        ("INSERT INTO t VALUES (1) RETURNING id", False),
        ("CONSUME FROM t", False),
        ("", False),
    ],
)
def test_one_query_is_reported_from_all_else(text: str, expected: bool) -> None:
    assert is_one_query(text) is expected


def refusal(line: int, column: int, message: str = "no") -> SqlError:
    return SqlError(message, line, column)


def pointed_at(text: str, line: int, column: int) -> str:
    """The character above the caret."""
    _, shown, caret = explain_sql_error(refusal(line, column), SqlRequest(text)).split("\n")
    return shown[caret.index("^")]


def test_the_caret_is_under_the_place() -> None:
    assert explain_sql_error(refusal(2, 8), SqlRequest("SELECT a\n  FROM t\n")) == "line 2, column 8: no\n  FROM t\n       ^"


def test_the_caret_is_under_the_place_of_a_long_line() -> None:
    text = "".join(chr(ord("a") + place % 26) for place in range(500))
    assert all(pointed_at(text, 1, column) == text[column - 1] for column in range(1, 501))


def test_the_caret_is_right_after_wide_letters() -> None:
    _, shown, caret = explain_sql_error(refusal(1, 4), SqlRequest("漢字 x")).split("\n")
    assert shown == "  漢字 x"
    assert caret == "       ^"


def test_the_caret_may_stand_behind_the_end() -> None:
    assert explain_sql_error(refusal(1, 9), SqlRequest("SELECT 1")).split("\n")[1:] == ["  SELECT 1", "          ^"]


def test_lines_are_counted_in_the_file() -> None:
    found = explain_sql_error(refusal(1, 3), SqlRequest("  x;", 7, 5), "schema.sql")
    assert found.startswith("schema.sql, line 7, column 7: no\n")
    assert explain_sql_error(refusal(2, 3), SqlRequest("a\nb x;", 7, 5), "schema.sql").startswith(
        "schema.sql, line 8, column 3: no\n"
    )


def test_an_error_without_a_place_is_its_message() -> None:
    assert explain_sql_error(UnknownTopicError("there is no topic 'x'"), SqlRequest("CLEAR TOPIC x")) == "there is no topic 'x'"


def test_an_error_without_a_place_names_the_line_of_its_statement_in_a_file() -> None:
    error = UnknownTopicError("there is no topic 'x'")
    assert (
        explain_sql_error(error, SqlRequest("\n\n CLEAR TOPIC x", 3, 9), "schema.sql")
        == "schema.sql, line 5: there is no topic 'x'"
    )


def test_a_line_with_a_password_is_not_shown() -> None:
    found = explain_sql_error(refusal(1, 24), SqlRequest("ALTER USER alice PASWORD 'hunter2'"))
    assert found == "line 1, column 24: no"
