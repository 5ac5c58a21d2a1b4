"""A caret stands under the place that an error is about."""

from tailrace.cli.failures import RefusedError
from tailrace.cli.sql.pointing import explain
from tailrace.cli.sql.script import Request


def refusal(line: int, column: int, message: str = "no") -> RefusedError:
    return RefusedError({"detail": f"line {line}, column {column}: {message}", "line": line, "column": column})


def pointed_at(text: str, line: int, column: int) -> str:
    """The character above the caret."""
    _, shown, caret = explain(refusal(line, column), Request(text)).split("\n")
    return shown[caret.index("^")]


def test_the_caret_is_under_the_place() -> None:
    assert explain(refusal(2, 8), Request("SELECT a\n  FROM t\n")) == "line 2, column 8: no\n  FROM t\n       ^"


def test_the_caret_is_under_the_place_of_a_long_line() -> None:
    text = "".join(chr(ord("a") + place % 26) for place in range(500))
    assert all(pointed_at(text, 1, column) == text[column - 1] for column in range(1, 501))


def test_the_caret_is_right_after_wide_letters() -> None:
    _, shown, caret = explain(refusal(1, 4), Request("漢字 x")).split("\n")
    assert shown == "  漢字 x"
    assert caret == "       ^"


def test_the_caret_may_stand_behind_the_end() -> None:
    assert explain(refusal(1, 9), Request("SELECT 1")).split("\n")[1:] == ["  SELECT 1", "          ^"]


def test_lines_are_counted_in_the_file() -> None:
    found = explain(refusal(1, 3), Request("  x;", 7, 5), "schema.sql")
    assert found.startswith("schema.sql, line 7, column 7: no\n")
    assert explain(refusal(2, 3), Request("a\nb x;", 7, 5), "schema.sql").startswith("schema.sql, line 8, column 3: no\n")


def test_an_error_without_a_place_is_its_message() -> None:
    assert explain(RefusedError({"detail": "there is no topic 'x'"}), Request("CLEAR TOPIC x")) == "there is no topic 'x'"


def test_an_error_without_a_place_names_the_line_of_its_statement_in_a_file() -> None:
    error = RefusedError({"detail": "there is no topic 'x'"})
    assert explain(error, Request("\n\n CLEAR TOPIC x", 3, 9), "schema.sql") == "schema.sql, line 5: there is no topic 'x'"
