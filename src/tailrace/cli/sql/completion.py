"""What the prompt knows of our SQL: completion by Tab, and syntax colours.

Completion offers names where names are expected, columns of the tables that the text mentions, and keywords. Only the server
knows the full grammar.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import ClassVar, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text

from tailrace.cli.errors import CommandError
from tailrace.cli.server_api import ServerApi
from tailrace.cli.sql.script import quoted_where_needed
from tailrace.model.errors import TailraceError

# fmt: off
KEYWORDS = (
    "ACK", "ADD", "ADMIN", "AFTER", "ALL", "ALTER", "ALWAYS", "ANALYZE", "AND", "AS", "ASC", "BEFORE", "BEGIN",
    "BETWEEN", "BY", "CASCADE", "CASE", "CAST", "CHECK", "CLEAR", "CLIENT", "COLUMN", "COMMIT", "CONFLICT",
    "CONSTRAINT", "CONSUME", "CONTINUE", "CORRUPT", "COSTS", "CREATE", "CROSS", "DATA", "DEAD", "DEFAULT", "DELETE",
    "DESC", "DESCRIBE", "DISTINCT", "DO", "DROP", "DRY", "EARLIEST", "ELSE", "END", "ENUM", "ENV", "EXCEPT", "EXISTS",
    "EXPIRES", "EXPLAIN", "FALSE", "FILE", "FOR", "FORCE", "FORMAT", "FROM", "FULL", "GENERATED", "GRANT", "GRANTS",
    "GROUP", "GROUPS", "HAVING", "ID", "IDENTITY", "IDS", "IF", "ILIKE", "IN", "INCREMENT", "INDEX", "INNER",
    "INSERT", "INTERSECT", "INTO", "IS", "JOIN", "JSON", "KAFKA", "KEY", "LATEST", "LEFT", "LETTERS", "LIKE", "LIMIT",
    "LOST", "NEW", "NO", "NOT", "NOTE", "NOTHING", "NULL", "OF", "OFF", "OFFSET", "OLD", "ON", "OR", "ORDER", "OUTER",
    "OVER", "OVERRIDING", "PARTITION", "PARTITIONS", "PASSWORD", "PATTERN", "PAUSE", "PIPELINE", "PIPELINES",
    "POSTGRES", "PREFIX", "PRIMARY", "PRIVILEGES", "PUBLIC", "PUBLISH", "QUEUE", "QUEUES", "QUOTA", "QUOTAS",
    "RECURSIVE", "REDRIVE", "RENAME", "REPLACE", "RESET", "RESTART", "RESTRICT", "RESUME", "RESYNC", "RETURNING",
    "REVOKE", "RIGHT", "ROLE", "ROLES", "ROLLBACK", "ROUTE", "ROUTES", "RUN", "SELECT", "SERVER", "SET", "SHADOW",
    "SHADOWS", "SHOW", "SKIP", "SNAPSHOT", "SOURCE", "SOURCES", "START", "SYSTEM", "TABLE", "TABLES", "TEXT", "THEN",
    "TIMESTAMP", "TIMING", "TO", "TOKEN", "TOKENS", "TOPIC", "TOPICS", "TRANSACTION", "TRANSACTIONAL", "TRUE",
    "TRUNCATE", "TYPE", "UNION", "UNIQUE", "UPDATE", "UPTO", "USER", "USERS", "USING", "VALUE", "VALUES", "VIEW",
    "VIEWS", "WAIT", "WHEN", "WHERE", "WINDOW", "WITH", "WORK"
)

TYPES = (
    "bigint", "boolean", "bytes", "char", "date", "decimal", "double", "integer", "interval", "json", "real", "smallint",
    "text", "time", "timestamp", "uuid", "varchar",
)

OPTIONS = (
    "alias", "captured_by", "cleanup_policy", "compact", "compression", "copied_by", "dedup", "dedup_window_seconds",
    "delete_retention_seconds", "groups", "latency", "max_compaction_lag_seconds", "max_message_bytes",
    "min_compaction_lag_seconds", "min_dirty_percent", "password", "password_env", "password_file", "payload",
    "publication", "retention_max_bytes", "retention_seconds", "slot", "snapshot", "tables", "throttle", "timestamps",
    "topics", "user",
)

FUNCTIONS = ("avg", "coalesce", "count", "lower", "max", "min", "now", "round", "sum", "table_changes", "upper")

TOPIC_COLUMNS = ("partition", "offset", "cursor", "timestamp", "key", "value", "headers", "source_table", "op", "payload_mode")
# fmt: on

SYSTEM_TABLES = tuple(
    f"system.{name}"
    for name in (
        "constraints",
        "grants",
        "groups",
        "indexes",
        "partitions",
        "pipelines",
        "queues",
        "quotas",
        "roles",
        "shadow_partitions",
        "shadows",
        "source_tables",
        "sources",
        "stats",
        "tables",
        "tokens",
        "topic_offsets",
        "topic_routes",
        "topics",
        "users",
    )
)


_CACHE_SECONDS = 30.0
_MAX_NAMES = 5_000


class KnownNames(NamedTuple):
    topics: Sequence[str] = ()
    tables: Mapping[str, Sequence[str]] = {}
    """The columns of each table."""
    views: Mapping[str, Sequence[str]] = {}
    """The columns of each view."""


class ServerNames:
    """The server's names of topics, tables, views and columns, cached for a while. Old ones stay if the server does not answer.

    The completer's thread calls `get`, the prompt's thread `forget`.
    """

    def __init__(self, connect: Callable[[], ServerApi]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._known = KnownNames()
        self._fresh_until = 0.0

    def get(self) -> KnownNames:
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._fresh_until = time.monotonic() + _CACHE_SECONDS
                with suppress(CommandError, TailraceError):
                    self._known = self._ask()
            return self._known

    def forget(self) -> None:
        """Ask the server again the next time, because names may have changed."""
        self._fresh_until = 0.0

    def _ask(self) -> KnownNames:
        with self._connect() as server:
            topics = [topic["name"] for topic in islice(server.pages("/api/topics", "topics"), _MAX_NAMES)]
            tables, views = (
                {
                    relation["name"]: [column["name"] for column in relation["columns"]]
                    for relation in islice(server.pages(f"/api/{kind}", kind), _MAX_NAMES)
                }
                for kind in ("tables", "views")
            )
        return KnownNames(topics, tables, views)


_TYPED = re.compile(r'[\w."]*$')
_WORD = re.compile(r'[\w."]+')
_BEFORE_NAMES = frozenset({"FROM", "INTO", "JOIN", "UPDATE", "TABLE", "VIEW", "TOPIC", "SOURCE", "ACK", "DESCRIBE"})


class SqlCompleter(Completer):
    def __init__(self, names: Callable[[], KnownNames]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        match = _TYPED.search(before)
        typed = match[0] if match else ""
        names = self._names()
        for kind, word in _candidates(before[: len(before) - len(typed)], document.text, typed, names):
            yield Completion(word, -len(typed), display_meta=kind)


def _candidates(before: str, text: str, typed: str, names: KnownNames) -> Iterator[tuple[str, str]]:
    words = _WORD.findall(before)
    last = words[-1].upper() if words and not before.rstrip().endswith((";", ")")) else ""
    if last in _BEFORE_NAMES:
        yield from _matching("table", names.tables, typed)
        yield from _matching("view", names.views, typed)
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
        yield from _matching("view", names.views, typed)
        yield from _matching("topic", names.topics, typed)
        yield from _matching("system", SYSTEM_TABLES, typed)


def _columns(text: str, names: KnownNames) -> list[str]:
    """Return the columns of the tables, views and topics that the text mentions."""
    mentioned = {word.replace('"', "") for word in _WORD.findall(text)}
    found: dict[str, None] = {}
    for relation, columns in (*names.tables.items(), *names.views.items()):
        if relation in mentioned:
            found.update(dict.fromkeys(columns))
    if not mentioned.isdisjoint(names.topics):
        found.update(dict.fromkeys(TOPIC_COLUMNS))
    return list(found)


def _keywords(typed: str) -> Iterator[tuple[str, str]]:
    """Yield keywords, in the case in which the word was started."""
    for word in KEYWORDS:
        if word.startswith(typed.upper()):
            yield "keyword", word.lower() if typed and typed == typed.lower() else word


def _matching(kind: str, names: Iterable[str], typed: str) -> Iterator[tuple[str, str]]:
    wanted = typed.replace('"', "").lower()
    for name in names:
        if name.lower().startswith(wanted):
            yield kind, quoted_where_needed(name)


class TailraceLexer(RegexLexer):  # type: ignore[misc]
    """Colours SQL as it is typed."""

    name = "Tailrace SQL"
    flags = 2  # re.IGNORECASE; the base class needs a plain number
    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"\s+", Text),
            (r"--.*?$", Comment),
            (r"/\*[\s\S]*?(\*/|$)", Comment),
            (r"'([^']|'')*('|$)", String),
            (r'"([^"]|"")*("|$)', Name),
            (words(KEYWORDS, prefix=r"(?<![\w.])", suffix=r"\b(?!\.)"), Keyword),
            (words(TYPES, prefix=r"(?<![\w.])", suffix=r"\b(?!\.)"), Keyword.Type),
            (words(FUNCTIONS, prefix=r"(?<![\w.])", suffix=r"(?=\s*\()"), Name.Function),
            (r"\d+(\.\d+)?", Number),
            (r"[:?]\w*", Name.Variable),
            (r"\w+", Name),
            (r".", Punctuation),
        ]
    }
