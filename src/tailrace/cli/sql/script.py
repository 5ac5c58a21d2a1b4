"""SQL as text: statements, requests, quoted names, and errors that point at the place, without knowing what it means.

`StatementReader` splits at each `;` outside of quotes and comments. It takes a text line by line, so it can read a file of any
length and a pipe that is still open. `RequestGrouper` joins what is between BEGIN and COMMIT, because a transaction is one
request.
"""

import re
from typing import NamedTuple

from tailrace.cli.display import printable
from tailrace.cli.errors import CommandError
from tailrace.model.errors import SqlError, TailraceError

_MARK = r"""--[^\r\n]*|/\*|(?<![\w$])\$(?:[^\W\d]\w*)?\$|(?<!\w)[eE]'|'|"|;"""
_FIRST_WORDS = re.compile(_MARK + r"|\w+|[^\s\w]")
_LATER = re.compile(_MARK)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_IN_ESCAPED = re.compile(r"\\.|''|'", re.DOTALL)
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WRITES = re.compile(r"\b(?:insert|update|delete)\b", re.IGNORECASE)
_PASSWORD = re.compile(r"\bpassword\b|\b(?:create|alter)\b.*\buser\b", re.IGNORECASE | re.DOTALL)
_KEPT_WORDS = 3
"""So many words tell BEGIN, COMMIT and ROLLBACK from everything else, and `COMMIT` from `COMMIT topic GROUP ...`."""

_ENDS = {(verb, *noise) for verb in ("COMMIT", "ROLLBACK") for noise in ((), ("WORK",), ("TRANSACTION",))}


class ScriptStatement(NamedTuple):
    text: str
    """Including its `;` and white space before it: the statements of a text concatenated are that text."""
    line: int
    column: int
    """Where its text starts, counted from 1."""
    words: tuple[str, ...]
    """The first words in upper case; signs and quotes count as words."""

    @property
    def begins_transaction(self) -> bool:
        return self.words[:1] == ("BEGIN",) or self.words[:2] == ("START", "TRANSACTION")

    @property
    def ends_transaction(self) -> bool:
        return self.words in _ENDS


class StatementReader:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._words: list[str] = []
        self._closing = ""
        """What ends the open quotation or comment; empty outside of them."""
        self._depth = 0
        self._line, self._column = 1, 1

    @property
    def is_between_statements(self) -> bool:
        """Whether there was only white space and comments since the last `;`."""
        return not self._words and not self._closing

    def feed(self, text: str) -> list[ScriptStatement]:
        """Return the statements that this text completes. It must be whole lines, or the end of the text."""
        done: list[ScriptStatement] = []
        begin = at = 0
        while at < len(text):
            if self._closing:
                at = self._skip(text, at)
                continue
            found = (_LATER if len(self._words) >= _KEPT_WORDS else _FIRST_WORDS).search(text, at)
            if found is None:
                break
            at = found.end()
            mark = found[0]
            if mark == ";":
                self._pieces.append(text[begin:at])
                begin = at
                done += self._finish()
            else:
                self._take(mark)
        self._pieces.append(text[begin:])
        return done

    def rest(self) -> list[ScriptStatement]:
        """Return the last statement, which may lack its `;`."""
        return self._finish()

    def _take(self, mark: str) -> None:
        if mark.startswith("--"):
            return
        if mark == "/*":
            self._closing, self._depth = "*/", 1
            return
        self._words.append(mark.upper())
        if mark in ("'", '"', "e'", "E'") or (mark.startswith("$") and len(mark) > 1):
            self._closing = mark

    def _skip(self, text: str, at: int) -> int:
        """Return where the open quotation or comment ends, or the end of the text."""
        if self._closing == "*/":
            for edge in _COMMENT_EDGE.finditer(text, at):
                self._depth += 1 if edge[0] == "/*" else -1
                if not self._depth:
                    self._closing = ""
                    return edge.end()
        elif self._closing in ("e'", "E'"):
            for mark in _IN_ESCAPED.finditer(text, at):
                if mark[0] == "'":
                    self._closing = ""
                    return mark.end()
        else:
            # A doubled quote ends the quotation and starts another one, which has the same effect.
            end = text.find(self._closing, at)
            if end >= 0:
                end += len(self._closing)
                self._closing = ""
                return end
        return len(text)

    def _finish(self) -> list[ScriptStatement]:
        text = "".join(self._pieces)
        found = ScriptStatement(text, self._line, self._column, tuple(self._words[:_KEPT_WORDS]))
        breaks = list(_LINE_BREAK.finditer(text))
        self._line += len(breaks)
        self._column = len(text) - breaks[-1].end() + 1 if breaks else self._column + len(text)
        self._pieces, self._words, is_empty = [], [], self.is_between_statements
        self._closing = ""
        return [] if is_empty else [found]


def is_one_query(text: str) -> bool:
    """Return whether it is one statement that certainly only reads rows."""
    reader = StatementReader()
    statements = [*reader.feed(text), *reader.rest()]
    if len(statements) != 1:
        return False
    first = statements[0].words[0]
    return first in ("SELECT", "VALUES") or (first == "WITH" and not _WRITES.search(text))


def is_copy(text: str) -> bool:
    """Return whether it is one COPY statement, which the client runs itself."""
    reader = StatementReader()
    statements = [*reader.feed(text), *reader.rest()]
    return len(statements) == 1 and statements[0].words[0] == "COPY"


def may_have_password(text: str) -> bool:
    """Return whether a text may have a password in it: it is about one or about a user, however it is misspelt."""
    return _PASSWORD.search(text) is not None


class SqlRequest(NamedTuple):
    """What is sent to the server in one request."""

    text: str
    line: int = 1
    column: int = 1


class RequestGrouper:
    def __init__(self) -> None:
        self._statements: list[ScriptStatement] = []

    @property
    def is_in_transaction(self) -> bool:
        return bool(self._statements)

    def add(self, statement: ScriptStatement) -> list[SqlRequest]:
        """Return the requests that this statement completes."""
        if not self._statements and not statement.begins_transaction:
            return [SqlRequest(statement.text, statement.line, statement.column)]
        self._statements.append(statement)
        return self.rest() if statement.ends_transaction else []

    def rest(self) -> list[SqlRequest]:
        """Return the statements of an open transaction as a request. The server rejects it, because the COMMIT is missing."""
        statements, self._statements = self._statements, []
        if not statements:
            return []
        return [SqlRequest("".join(statement.text for statement in statements), statements[0].line, statements[0].column)]


_PLACE = re.compile(r"line \d+, column \d+: ")
_SHOWN = 72
"""How many characters of a line are shown; a longer one is cut around the place."""


def explain_sql_error(error: CommandError | TailraceError, request: SqlRequest, source: str = "") -> str:
    """Describe an error with the line that it is about and a caret under the place. A line with a password is not shown.

    `source` is the name of the file, if there is one; lines are counted in it.
    """
    line: int | None = getattr(error, "line", None) if isinstance(error, SqlError) else None
    column: int | None = getattr(error, "column", None)
    if line is None or column is None:
        return f"{source}, line {_first_line(request)}: {error}" if source else str(error)
    lines = _LINE_BREAK.split(request.text)
    message = without_place(error)
    shown_line = request.line + line - 1
    shown_column = column + (request.column - 1 if line == 1 else 0)
    where = f"{source}, line {shown_line}" if source else f"line {shown_line}"
    head = f"{where}, column {shown_column}: {message}"
    if not 1 <= line <= len(lines) or may_have_password(request.text):
        return head
    return f"{head}\n{_pointed(lines[line - 1], column)}"


def without_place(error: CommandError | TailraceError) -> str:
    """Return the message of an error without its line and column, for a statement that nobody has typed."""
    return _PLACE.sub("", str(error), count=1)


def _first_line(request: SqlRequest) -> int:
    """Return the first line that is not empty."""
    before = request.text[: len(request.text) - len(request.text.lstrip())]
    return request.line + len(_LINE_BREAK.findall(before))


def _pointed(line: str, column: int) -> str:
    from rich.cells import cell_len

    at = min(column - 1, len(line))
    begin = max(0, min(at - _SHOWN // 2, len(line) - _SHOWN))
    before, after = printable(line[begin:at]), printable(line[at : begin + _SHOWN])
    if begin == 0:
        stripped = before.lstrip()
        before = stripped if stripped or not before else ""
    lead = "  ..." if begin else "  "
    tail = "..." if begin + _SHOWN < len(line) else ""
    return f"{lead}{before}{after}{tail}\n{' ' * (len(lead) + cell_len(before))}^"


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted(name: str) -> str:
    """Quote every segment, so that SQL takes it as a name whatever it is."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def quoted_where_needed(name: str) -> str:
    """Quote only the segments that need it: `shop.orders`, `shop."my-orders"`."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in name.split("."))
