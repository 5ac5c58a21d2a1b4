"""What Tab offers: names where names stand, columns of the tables that the text mentions, and keywords."""

import re
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tailrace.cli.quoting import quoted_where_needed
from tailrace.cli.sql.names import Names
from tailrace.cli.sql.words import FUNCTIONS, KEYWORDS, OPTIONS, SYSTEM_TABLES, TOPIC_COLUMNS, TYPES

_TYPED = re.compile(r'[\w."]*$')
_WORD = re.compile(r'[\w."]+')
_BEFORE_NAMES = frozenset({"FROM", "INTO", "JOIN", "UPDATE", "TABLE", "TOPIC", "SOURCE", "ACK"})


class SqlCompleter(Completer):
    def __init__(self, names: Callable[[], Names]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        match = _TYPED.search(before)
        typed = match[0] if match else ""
        names = self._names()
        for kind, word in _candidates(before[: len(before) - len(typed)], document.text, typed, names):
            yield Completion(word, -len(typed), display_meta=kind)


def _candidates(before: str, text: str, typed: str, names: Names) -> Iterator[tuple[str, str]]:
    words = _WORD.findall(before)
    last = words[-1].upper() if words and not before.rstrip().endswith((";", ")")) else ""
    if last in _BEFORE_NAMES:
        yield from _matching("table", names.tables, typed)
        yield from _matching("topic", names.topics, typed)
        yield from _matching("system", SYSTEM_TABLES, typed)
        # `FROM` is also followed by EARLIEST, `TABLE` by IF NOT EXISTS.
        yield from _keywords(typed) if typed else ()
        return
    if before.strip():
        yield from _matching("column", _columns(text, names), typed)
    yield from _keywords(typed)
    if typed:
        yield from _matching("function", FUNCTIONS, typed)
        yield from _matching("type", TYPES, typed)
        yield from _matching("option", OPTIONS, typed)
        yield from _matching("table", names.tables, typed)
        yield from _matching("topic", names.topics, typed)
        yield from _matching("system", SYSTEM_TABLES, typed)


def _columns(text: str, names: Names) -> list[str]:
    """Of the tables and topics that are mentioned anywhere in the text."""
    mentioned = {word.replace('"', "") for word in _WORD.findall(text)}
    found: dict[str, None] = {}
    for table, columns in names.tables.items():
        if table in mentioned:
            found.update(dict.fromkeys(columns))
    if not mentioned.isdisjoint(names.topics):
        found.update(dict.fromkeys(TOPIC_COLUMNS))
    return list(found)


def _keywords(typed: str) -> Iterator[tuple[str, str]]:
    """In the case in which the word was begun."""
    for word in KEYWORDS:
        if word.startswith(typed.upper()):
            yield "keyword", word.lower() if typed and typed == typed.lower() else word


def _matching(kind: str, names: Iterable[str], typed: str) -> Iterator[tuple[str, str]]:
    wanted = typed.replace('"', "").lower()
    for name in names:
        if name.lower().startswith(wanted):
            yield kind, quoted_where_needed(name)
