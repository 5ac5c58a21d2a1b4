"""`tailrace serve`: run a server on a folder."""

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.log_format import LogFormat
from tailrace.cli.server_process import ServeFlags, run_server
from tailrace.model.commit import Durability

ACCEPT_LOSS_HELP = "Start on a log that has lost its end, without the lost records. The error names the position to give."


def serve(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder that holds everything; created if it does not exist.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="HTTP listener, by default 127.0.0.1:8080. Port 0 picks a free one."),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", metavar="HOST:PORT", help="Kafka listener, by default 127.0.0.1:9092. Port 0 picks a free one."
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise", metavar="HOST:PORT", help="Address that Kafka clients are told, if it is not the listener's."
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
        Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML; flags override them.")
    ] = None,
    accept_loss_after: Annotated[
        int | None, typer.Option("--accept-loss-after", metavar="POSITION", min=0, help=ACCEPT_LOSS_HELP)
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Listen where other machines can reach it. Needs authentication and TLS; `tailrace init` sets them up.",
        ),
    ] = False,
    no_authentication: Annotated[
        bool, typer.Option("--no-authentication", help="Let everybody do everything, whatever the configuration file says.")
    ] = False,
    no_tls: Annotated[bool, typer.Option("--no-tls", help="Speak no TLS, whatever the configuration file says.")] = False,
    log_format: Annotated[
        LogFormat | None, typer.Option("--log-format", help="How log lines are written: text (the default) or json.")
    ] = None,
) -> None:
    """Run a server on a folder.

    Prints one line when it is ready for requests. On SIGTERM or Ctrl-C it
    finishes the requests under way, syncs and exits with 0.

    [bold]Examples[/]
    tailrace serve --data ./data
    tailrace serve --data /var/lib/tailrace --config tailrace.toml
    """
    run_server(
        ServeFlags(
            data=_text(data),
            http=http,
            kafka=kafka,
            advertise=advertise,
            durability=durability,
            config=_text(config),
            allow_remote=allow_remote,
            no_authentication=no_authentication,
            no_tls=no_tls,
            log_format=log_format,
            accept_loss_after=accept_loss_after,
        )
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
