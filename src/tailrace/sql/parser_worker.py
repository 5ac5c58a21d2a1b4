"""The process that parses long texts of SQL for a server, one at a time.

sqlglot keeps the interpreter to itself while it parses, for a second with a text of 100 KB; in the server nobody else would be
served meanwhile. What comes back from here is small: statements with their trees as long as those have few nodes; else the
programs that they were compiled to, for which the server is asked about the tables that they name.
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
from tailrace.sql.statements import AddSource, Query, Redrive, Statement, Write
from tailrace.sql.syntax_trees import is_cte, name_of
from tailrace.sql.tables.compile import program_of
from tailrace.sql.tables.inference import FindTable
from tailrace.sql.tables.programs import CompiledStatement

LENGTH = struct.Struct(">I")
OUT_OF_TIME = signal.SIGPROF
"""What ends the process when a text takes too long."""
_LEAST_SECONDS = 0.01
_NICE = 5


class ParseRequest(NamedTuple):
    """To the process: what does this mean?"""

    text: str
    limits: Limits


class TableRequest(NamedTuple):
    """To the server: which table has this name?"""

    name: str


class ParseResult(NamedTuple):
    """To the server: the statements, each pickled by itself, so that none holds up the server for long."""

    statements: Sequence[bytes]


class ParseFailure(NamedTuple):
    """To the server: the text can't be run."""

    error: TailraceError


def read_text(text: str, find: FindTable, limits: Limits) -> ParseResult | ParseFailure:
    try:
        return ParseResult([pickle.dumps(_small(statement, find, limits)) for statement in parse(text, limits)])
    except TailraceError as error:
        return ParseFailure(error.afresh())
    except (RecursionError, MemoryError):
        return ParseFailure(SqlError("the statement is nested too deep; take it apart"))


def _small(statement: Statement, find: FindTable, limits: Limits) -> Statement:
    """The statement without a tree that would take the server long."""
    nodes = sum(1 for tree in _trees(statement) for _ in tree.walk())
    if nodes <= limits.statement_nodes:
        return statement
    plain = with_rows_apart(statement, limits) if isinstance(statement, Write) else None
    if plain is not None:
        return plain
    if isinstance(statement, Query | Write):
        named = [table for table in statement.tree.find_all(exp.Table) if not is_cte(table)]
        tables = [None if isinstance(table.this, exp.Func) else find(name_of(table)) for table in named]
        if named and all(tables):
            return _compiled(statement, [table for table in tables if table is not None], find)
    raise LimitExceededError(
        f"the statement at line {statement.line}, column {statement.column} has {nodes} names, constants and operators; one"
        f" that is not about tables alone may have {limits.statement_nodes} (statement_nodes). Narrow it down, or send values"
        " as rows of parameters"
    )


def _compiled(statement: Query | Write, tables: Sequence[Table], find: FindTable) -> Statement:
    types: dict[str, ColumnType] = {}
    program = program_of(statement, find, types)
    tree = statement.tree
    head = type(tree)(this=tree.this.copy()) if isinstance(statement, Write) else exp.Select()
    return msgspec.structs.replace(statement, tree=head, compiled=CompiledStatement(program, tables, types))


def _trees(statement: Statement) -> Sequence[exp.Expr]:
    match statement:
        case Query() | Write():
            return [statement.tree]
        case AddSource():
            return [tree for tree in (statement.where, *statement.partition_by) if tree is not None]
        case Redrive():
            return [statement.where] if statement.where is not None else []
    return []


def send(out: BinaryIO, value: object) -> None:
    data = pickle.dumps(value)
    out.write(LENGTH.pack(len(data)) + data)
    out.flush()


def receive(source: BinaryIO) -> object:
    """What the server sent. Raises `EOFError` when it has gone."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(source.read(*LENGTH.unpack(head)))  # noqa: S301  from the server that started this process


def main() -> None:
    """Called with the seconds that a text may take."""
    # Whoever produces or consumes goes first.
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
                # Of the processor's time, so that a busy machine refuses nobody. The signal ends the process.
                signal.setitimer(signal.ITIMER_PROF, max(_LEAST_SECONDS, seconds))
                send(out, read_text(asked.text, find, asked.limits))
                signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    # The server must know the classes of what is sent, so they are those of the module and not of the program.
    from tailrace.sql import parser_worker

    parser_worker.main()
