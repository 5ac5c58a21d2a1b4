"""The process that parses long SQL texts for a server, one at a time.

The parser and what builds its trees hold the interpreter's lock, during which the server could serve nobody. Long INSERTs of
plain values are sent back as rows, without their trees.
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

from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.limits import Limits
from tailrace.sql.fast_insert import with_rows_apart
from tailrace.sql.parse import parse
from tailrace.sql.statements import ExplainStatement, Statement, Write

LENGTH = struct.Struct(">I")
OUT_OF_TIME = signal.SIGPROF
"""The signal that ends the process when a text takes too long."""
_MIN_SECONDS = 0.01
_NICE = 5
_SMALL_CHARACTERS = 4096


class ParseRequest(NamedTuple):
    """To the process: parse this text."""

    text: str
    limits: Limits


class ParseResult(NamedTuple):
    """To the server: the statements, pickled one by one, so that unpickling one does not block the event loop for long."""

    statements: Sequence[bytes]


class ParseFailure(NamedTuple):
    """To the server: the text was rejected."""

    error: TailraceError


def read_text(text: str, limits: Limits) -> ParseResult | ParseFailure:
    """Return the statements of a text, or the error that it was rejected with."""
    try:
        return ParseResult([pickle.dumps(_small(statement, limits)) for statement in parse(text, limits)])
    except TailraceError as error:
        return ParseFailure(error.afresh())
    except (RecursionError, MemoryError):
        return ParseFailure(SqlError("the statement is nested too deeply; split it into smaller statements"))


def _small(statement: Statement, limits: Limits) -> Statement:
    """Return the statement without a tree that would take the server long to unpickle."""
    if isinstance(statement, ExplainStatement):
        return msgspec.structs.replace(statement, statement=_small(statement.statement, limits))
    if not isinstance(statement, Write) or statement.kind != "insert" or len(statement.text) <= _SMALL_CHARACTERS:
        return statement
    return with_rows_apart(statement, limits) or statement


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

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        send(out, None)
        while True:
            asked = receive(source)
            if isinstance(asked, ParseRequest):
                # The limit is on processor time, so that a busy machine rejects nobody. The signal ends the process.
                signal.setitimer(signal.ITIMER_PROF, max(_MIN_SECONDS, seconds))
                send(out, read_text(asked.text, asked.limits))
                signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    # The server must be able to unpickle the classes, so they must belong to the module and not to `__main__`.
    from tailrace.sql import parser_worker

    parser_worker.main()
