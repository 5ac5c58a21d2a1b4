r"""The prompt of `tailrace sql`.

Enter sends if the last statement has its `;`, else it starts a new line. From BEGIN to COMMIT statements are collected, and the
prompt shows a star, because a transaction is one request. Ctrl-C cancels the running statement, or clears what was typed;
it never ends the prompt. What was typed is kept from one session to the next in a file in the user's state folder, but for what
may have a password.
"""

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.filters import completion_is_selected, is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.shortcuts import CompleteStyle

from tailrace.cli.display import print_note
from tailrace.cli.errors import ExitCode
from tailrace.cli.server_api import ServerApi
from tailrace.cli.sql.completion import ServerNames, SqlCompleter, TailraceLexer
from tailrace.cli.sql.results import ResultPrinter, SqlRunner, TablePrinter
from tailrace.cli.sql.script import RequestGrouper, SqlRequest, StatementReader, may_have_password, quoted

HELP = r"""Statements end with ; and may have several lines.
Tab completes, the arrow up brings back what was typed before.

  \d NAME    describe a table or topic; \d alone lists them all
  \t         timing on or off
  \x         one value per line: always, never, or as needed
  \q, quit   quit, as Ctrl-D
  \?, help   this help

BEGIN collects statements until COMMIT, and then sends them as one request.
Ctrl-C cancels the running statement. The statements: docs/reference/sql.md"""

_QUIT = frozenset({"\\q", "quit", "exit"})
_HELP = frozenset({"\\?", "\\h", "help"})
_NAMING = frozenset({"CREATE", "DROP", "ALTER"})


class Prompt:
    def __init__(self, server: ServerApi, names: ServerNames, printer: ResultPrinter, history: History) -> None:
        self._server = server
        self._names = names
        self._printer = printer
        self._runner = SqlRunner(server, printer)
        self._requests = RequestGrouper()
        self._session: PromptSession[str] = PromptSession(
            message=lambda: "tailrace*> " if self._requests.is_in_transaction else "tailrace> ",
            prompt_continuation=lambda width, number, wraps: "-> ".rjust(width),
            multiline=True,
            history=history,
            lexer=PygmentsLexer(TailraceLexer),
            completer=ThreadedCompleter(SqlCompleter(names.get)),
            complete_while_typing=False,
            complete_style=CompleteStyle.MULTI_COLUMN,
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=_enter_sends_what_is_complete(),
            enable_open_in_editor=True,
        )

    def run(self) -> None:
        while True:
            try:
                text = self._session.prompt()
                if _word(text) in _QUIT:
                    break
                self._take(text)
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
        if self._requests.is_in_transaction:
            print_note("the transaction was not committed; none of it was sent")

    def _take(self, text: str) -> None:
        if _word(text) in _HELP:
            print_note(HELP)
        elif text.strip().startswith("\\"):
            self._command(text.strip())
        else:
            self._statements(text)

    def _statements(self, text: str) -> None:
        reader = StatementReader()
        for statement in reader.feed(text + "\n"):
            if statement.begins_transaction and not self._requests.is_in_transaction:
                print_note("a transaction is one request: statements are collected, and sent at COMMIT")
            if statement.words[0] in _NAMING:
                self._names.forget()
            for request in self._requests.add(statement):
                if self._runner.run(request) is not ExitCode.OK:
                    return

    def _command(self, text: str) -> None:
        command, _, rest = text.rstrip(";").strip().partition(" ")
        if command == "\\d" and rest.strip():
            self._describe(rest.strip().replace('"', ""))
        elif command == "\\d":
            self._runner.run(SqlRequest("SHOW TABLES; SHOW TOPICS;"))
        elif command in ("\\t", "\\x"):
            print_note(self._toggle(command))
        else:
            print_note(f"there is no {command}; \\? lists the commands")

    def _toggle(self, command: str) -> str:
        if not isinstance(self._printer, TablePrinter):
            return f"{command} is for tables; leave --format out"
        if command == "\\t":
            self._printer.timing = not self._printer.timing
            return f"timing is {'on' if self._printer.timing else 'off'}"
        turns = {None: True, True: False, False: None}
        names = {None: "where columns don't fit", True: "always", False: "never"}
        self._printer.is_vertical = turns[self._printer.is_vertical]
        return f"one value per line: {names[self._printer.is_vertical]}"

    def _describe(self, name: str) -> None:
        self._runner.run(SqlRequest(f"DESCRIBE {quoted(name)}"))


def _word(text: str) -> str:
    return text.strip().rstrip(";").strip().lower()


def is_complete(text: str) -> bool:
    """Return whether Enter sends this text."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in _QUIT | _HELP:
        return True
    reader = StatementReader()
    reader.feed(text + "\n")
    return reader.is_between_statements


def _enter_sends_what_is_complete() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected & ~is_searching)
    def send_or_break(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def take_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


_MAX_HISTORY_BYTES = 2 * 1024 * 1024
_ENTRY_START = b"\n# "
"""How an entry of the file starts."""


def history_file() -> Path:
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "tailrace" / "sql_history"


def open_history(file: Path) -> History:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        if file.stat().st_size > _MAX_HISTORY_BYTES:
            _cut(file)
        with file.open("ab"):
            pass
    except OSError as error:
        print_note(f"the history can't be saved: {error.filename}: {error.strerror}")
        return InMemoryHistory()
    return StatementHistory(file)


class StatementHistory(FileHistory):
    """Keeps what was typed from one session to the next, without texts that may have a password."""

    def store_string(self, string: str) -> None:
        if not may_have_password(string):
            super().store_string(string)


def _cut(file: Path) -> None:
    """Keep the newer half of the file. It is written to a second file first, so that a crash loses nothing."""
    newer = file.read_bytes()[-_MAX_HISTORY_BYTES // 2 :]
    begin = newer.find(_ENTRY_START)
    shorter = file.with_name(f"{file.name}.{os.getpid()}")
    shorter.touch(mode=0o600)
    shorter.write_bytes(newer[max(0, begin) :])
    shorter.replace(file)
