"""SHOW and DESCRIBE.

SHOW TOPICS | TABLES | ROUTES | GROUPS
DESCRIBE TOPIC | TABLE name
"""

from typing import Literal

from tailrace.sql.statements import Describe, Show, Statement
from tailrace.sql.words import Words

_SHOWN: dict[str, Literal["topics", "tables", "routes", "groups"]] = {
    "TOPICS": "topics",
    "TABLES": "tables",
    "ROUTES": "routes",
    "GROUPS": "groups",
}
_DESCRIBED: dict[str, Literal["topic", "table"]] = {"TOPIC": "topic", "TABLE": "table"}


def show(words: Words, text: str) -> Statement:
    words.expect("SHOW")
    what = _SHOWN[words.one_of(*_SHOWN)]
    words.expect_end()
    return Show(text=text, what=what)


def describe(words: Words, text: str) -> Statement:
    words.one_of("DESCRIBE", "DESC")
    what = _DESCRIBED[words.one_of(*_DESCRIBED)]
    name = words.name(f"the name of a {what}")
    words.expect_end()
    return Describe(text=text, what=what, name=name)
