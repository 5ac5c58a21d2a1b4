"""What Tab offers where."""

import re

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tailrace.cli.sql.completion import KEYWORDS, OPTIONS, SYSTEM_TABLES, TOPIC_COLUMNS, TYPES, KnownNames, SqlCompleter
from tests.docs.tables import REFERENCE

NAMES = KnownNames(
    ["shop.orders", "my-topic"], {"chat.messages": ["id", "body", "is_visible"]}, {"chat.recent": ["body", "at_last"]}
)
SYNTAX = re.compile(r"^    (?! )(.*(?:\n     .*)*)$", re.MULTILINE)


def offered(text: str, behind: str = "") -> list[str]:
    document = Document(text + behind, len(text))
    completer = SqlCompleter(lambda: NAMES)
    return [
        text[: len(text) + completion.start_position] + completion.text
        for completion in completer.get_completions(document, CompleteEvent())
    ]


def test_names_are_offered_where_names_stand() -> None:
    assert offered("SELECT * FROM sh")[0] == "SELECT * FROM shop.orders"
    assert offered("describe table CHAT") == ["describe table chat.messages", "describe table chat.recent"]
    assert offered("DROP VIEW chat.r") == ["DROP VIEW chat.recent"]
    assert offered("DESCRIBE chat.r") == ["DESCRIBE chat.recent"]
    assert {"DELETE FROM chat.messages", "DELETE FROM shop.orders", "DELETE FROM system.topics"} <= set(offered("DELETE FROM "))


def test_a_name_is_completed_behind_its_dot() -> None:
    assert offered("SELECT * FROM chat.") == ["SELECT * FROM chat.messages", "SELECT * FROM chat.recent"]


def test_names_that_need_quotes_get_them() -> None:
    assert offered("CLEAR TOPIC my") == ['CLEAR TOPIC "my-topic"']
    assert offered('CLEAR TOPIC "my') == ['CLEAR TOPIC "my-topic"']


def test_columns_of_the_mentioned_tables_come_first() -> None:
    assert offered("SELECT is_", " FROM chat.messages") == ["SELECT is_visible"]
    assert offered("SELECT at_", " FROM chat.recent") == ["SELECT at_last"]
    assert offered("SELECT * FROM shop.orders WHERE part")[0] == "SELECT * FROM shop.orders WHERE partition"
    assert "SELECT body" not in offered("SELECT bo", " FROM shop.orders")


def test_keywords_are_offered_in_the_case_in_which_they_were_begun() -> None:
    assert offered("CONSU") == ["CONSUME"]
    assert offered("consu") == ["consume"]


def test_every_word_of_the_documented_syntax_is_known() -> None:
    page = (REFERENCE / "sql.md").read_text()
    syntax = " ".join(block for block in SYNTAX.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    words = set(re.findall(r"\b[A-Z]{2,}\b", syntax))
    assert {"CONSUME", "CASCADE", "HAVING", "UPTO"} <= words
    assert words - set(KEYWORDS) == set()


def test_every_type_option_column_and_system_table_is_known() -> None:
    page = (REFERENCE / "sql.md").read_text()
    rows = set(re.findall(r"^\| `([a-z_]+)", page, re.MULTILINE))
    assert set(TYPES) | set(OPTIONS) >= rows - {"type"}
    options = (REFERENCE / "sources.md").read_text().split("## Options\n")[1].split("\n## ")[0]
    of_sources = set(re.findall(r"^\| `([a-z_]+)`", options, re.MULTILINE))
    assert "captured_by" in of_sources
    assert set(OPTIONS) >= of_sources
    columns = re.search(r"A topic has the columns (.*?)\.", page, re.DOTALL)
    assert columns is not None
    assert set(re.findall(r"`(\w+)`", columns[1])) == set(TOPIC_COLUMNS)
    documented = re.findall(r"^## `(system\.\w+)`", (REFERENCE / "system-tables.md").read_text(), re.MULTILINE)
    assert sorted(SYSTEM_TABLES) == sorted(documented)
