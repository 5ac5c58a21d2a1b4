"""`tailrace serve`: run a server on a folder."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace import __version__
from tailrace.cli.exits import Exit
from tailrace.model.clock import SystemClock
from tailrace.model.durability import Durability

if TYPE_CHECKING:
    from tailrace.cli.settings import Settings
    from tailrace.server import Ready

STOP_SECONDS = 9.0
"""How long a stop may take before the process is ended by force."""


def serve(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder that holds everything; made if it is not there.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="HTTP listener, by default 127.0.0.1:8080. Port 0 is any free one."),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Kafka listener, by default 127.0.0.1:9092. Port 0 is any free one."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise", metavar="HOST:PORT", help="Where Kafka clients are told to connect, if not where it listens."
        ),
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(
            "--durability",
            help="fsync (the default) acknowledges after the sync; relaxed after the write, and syncs within 100 ms.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML; flags win over it.")
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen where other machines can reach it. There is no authentication yet.")
    ] = False,
) -> None:
    """Run a server on a folder.

    Prints one line when it takes requests. On SIGTERM or Ctrl-C it finishes
    what it was asked to do, syncs and exits with 0.

    [bold]Examples[/]

      tailrace serve --data ./data

      tailrace serve --data /var/lib/tailrace --http 127.0.0.1:9000 --config tailrace.toml
    """
    from tailrace.cli.settings import Configuration, read_configuration, settle

    settings = settle(
        read_configuration(config) if config else Configuration(),
        data=data,
        http=http,
        kafka=kafka,
        advertise=advertise,
        durability=durability,
        allow_remote=allow_remote,
    )
    _run(settings)


def _run(settings: "Settings") -> None:
    # Only this command needs the whole server; the others, and --help, start without it.
    import uvloop

    from tailrace.server import Server

    def announce(ready: "Ready") -> None:
        replayed = f" with {ready.replayed_bytes:,} bytes read again" if ready.replayed_bytes else ""
        typer.echo(
            f"Tailrace {__version__} is ready at http://{ready.http}, Kafka at {ready.kafka}, data in {settings.data},"
            f" durability {settings.durability}, opened in {ready.open_seconds:.2f} s{replayed}"
        )

    server = Server(
        folder=settings.data,
        http=settings.http,
        kafka=settings.kafka,
        advertise=settings.advertise,
        durability=settings.durability,
        broker=settings.broker,
        kafka_settings=settings.kafka_settings,
        limits=settings.limits,
        clock=SystemClock(),
        on_ready=announce,
        on_stop=_end_by_force_later,
    )
    failure = uvloop.run(server.run())
    if failure is not None:
        typer.echo(f"tailrace: {failure}", err=True)
        raise typer.Exit(Exit.STORAGE_FAILED)


def _end_by_force_later() -> None:
    def end() -> None:
        typer.echo(f"tailrace: not finished {STOP_SECONDS:g} s after the stop; ended. What was acknowledged is safe", err=True)
        os._exit(Exit.STOP_TIMED_OUT)

    timer = threading.Timer(STOP_SECONDS, end)
    timer.daemon = True
    timer.start()
