"""The process that parses long SQL texts for a server, one at a time.

sqlglot holds the interpreter's lock while it parses, for a second with a text of 100 KB, during which the server could serve
nobody. The statements that are sent back are small: they keep their trees only if those have few nodes. Otherwise they carry
the compiled program, for which this process asks the server about the tables that the statement names.
"""

import contextlib
import os
import pickle
import signal
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import msgspec
from sqlglot import exp

from tailrace.model.errors import LimitExceededError, SqlError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.table import ColumnType, Table
from tailrace.sql.fast_insert import with_rows_apart
from tailrace.sql.parse import parse
from tailrace.sql.statements import ExplainStatement, Statement, Write
from tailrace.sql.syntax_trees import is_cte, name_of
from tailrace.sql.tables.compile import program_of
from tailrace.sql.tables.inference import FindTable
from tailrace.sql.tables.programs import CompiledStatement

LENGTH = struct.Struct(">I")
OUT_OF_TIME = signal.SIGPROF
"""The signal that ends the process when a text takes too long."""
_MIN_SECONDS = 0.01
_NICE = 5


class ParseRequest(NamedTuple):
    """To the process: parse this text."""

    text: str
    limits: Limits


class TableRequest(NamedTuple):
    """To the server: return the table of this name, or `None`."""

    name: str


class ParseResult(NamedTuple):
    """To the server: the statements, pickled one by one, so that unpickling one does not block the event loop for long."""

    statements: Sequence[bytes]


class ParseFailure(NamedTuple):
    """To the server: the text was rejected."""

    error: TailraceError


def read_text(text: str, find: FindTable, limits: Limits) -> ParseResult | ParseFailure:
    """Return the statements of a text, or the error that it was rejected with."""
    try:
        return ParseResult([pickle.dumps(_small(statement, find, limits)) for statement in parse(text, limits)])
    except TailraceError as error:
        return ParseFailure(error.afresh())
    except (RecursionError, MemoryError):
        return ParseFailure(SqlError("the statement is nested too deeply; split it into smaller statements"))


def _small(statement: Statement, find: FindTable, limits: Limits) -> Statement:
    """Return the statement without a tree that would take the server long to unpickle."""
    if isinstance(statement, ExplainStatement):
        return msgspec.structs.replace(statement, statement=_small(statement.statement, find, limits))
    nodes = sum(1 for tree in _trees(statement) for _ in tree.walk())
    if nodes <= limits.statement_nodes:
        return statement
    plain = with_rows_apart(statement, limits) if isinstance(statement, Write) else None
    if plain is not None:
        return plain
    if isinstance(statement, Write):
        named = [table for table in statement.tree.find_all(exp.Table) if not is_cte(table)]
        tables = [None if isinstance(table.this, exp.Func) else find(name_of(table)) for table in named]
        if named and all(tables):
            return _compiled(statement, [table for table in tables if table is not None], find)
    raise LimitExceededError(
        f"the statement at line {statement.line}, column {statement.column} has {nodes} names, constants and operators; a"
        f" statement that does not only use tables may have {limits.statement_nodes} (statement_nodes). Simplify it, or send"
        " values as rows of parameters"
    )


def _compiled(statement: Write, tables: Sequence[Table], find: FindTable) -> Statement:
    types: dict[str, ColumnType] = {}
    program = program_of(statement, find, types)
    tree = statement.tree
    head = type(tree)(this=tree.this.copy())
    return msgspec.structs.replace(statement, tree=head, query=None, compiled=CompiledStatement(program, tables, types))


def _trees(statement: Statement) -> Sequence[exp.Expr]:
    match statement:
        case Write():
            return [statement.tree]
    return []


def send(out: BinaryIO, value: object) -> None:
    data = pickle.dumps(value)
    out.write(LENGTH.pack(len(data)) + data)
    out.flush()


def receive(source: BinaryIO) -> object:
    """Return the next message of the server. Raises `EOFError` when the server has gone."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(source.read(*LENGTH.unpack(head)))  # noqa: S301  sent by the server that started this process


def main() -> None:
    """Serve the parent process. The argument is the processor time that a text may take, in seconds."""
    # Producers and consumers come first.
    os.nice(_NICE)
    seconds = int(sys.argv[1])
    source, out = sys.stdin.buffer, sys.stdout.buffer

    def find(name: str) -> Table | None:
        send(out, TableRequest(name))
        found = receive(source)
        return found if isinstance(found, Table) else None

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        send(out, None)
        while True:
            asked = receive(source)
            if isinstance(asked, ParseRequest):
                # The limit is on processor time, so that a busy machine rejects nobody. The signal ends the process.
                signal.setitimer(signal.ITIMER_PROF, max(_MIN_SECONDS, seconds))
                send(out, read_text(asked.text, find, asked.limits))
                signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    # The server must be able to unpickle the classes, so they must belong to the module and not to `__main__`.
    from tailrace.sql import parser_worker

    parser_worker.main()
