"""`tailrace up`: a server and its pipeline, started, watched and stopped together."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.exits import Exit
from tailrace.cli.serve import ACCEPT_LOSS_HELP
from tailrace.cli.status_lines import say
from tailrace.cli.supervisor import Part, Supervisor

_SERVER = "server"
_PIPELINE = "pipeline"
_READY = "is ready at "
_DATA = Path("./data")


def up(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder that holds everything, by default ./data.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="HTTP listener, by default 127.0.0.1:8080.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Kafka listener, by default 127.0.0.1:9092.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings in TOML; flags win over it."),
    ] = None,
    accept_loss_after: Annotated[
        int | None, typer.Option("--accept-loss-after", metavar="POSITION", min=0, help=ACCEPT_LOSS_HELP)
    ] = None,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
) -> None:
    """Run a server and its pipeline together, in one terminal.

    Each line says which of the two it comes from. The pipeline is started again
    if it ends; where Spark or Java is missing, the server runs without it and
    changes wait in the log. Ctrl-C stops both.

    [bold]Examples[/]
    tailrace up
    tailrace up --data /var/lib/tailrace --http 127.0.0.1:9000
    """
    from tailrace.pipeline.address import ServerAddress
    from tailrace.pipeline.errors import PipelineError
    from tailrace.pipeline.session import check_spark
    from tailrace.pipeline.tenure import report_failed_start

    command = [sys.executable, "-m", "tailrace"]
    # What is not said here is left to the file, if there is one.
    folder = _DATA if data is None and config is None else data
    said = {
        "--data": folder,
        "--http": http,
        "--kafka": kafka,
        "--config": config,
        "--accept-loss-after": accept_loss_after,
    }
    serve = [*command, "serve", *(word for flag, value in said.items() if value is not None for word in (flag, str(value)))]
    supervisor = Supervisor(_say)
    # A terminal that is closed stops both in order, too, unless `nohup` says otherwise.
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGTERM, signal.SIGINT, *hangup):
        signal.signal(number, lambda *_: supervisor.stop())
    ready = supervisor.start(Part(_SERVER, serve, is_essential=True), until=_READY)
    if ready is not None:
        # As it says itself: a port of 0 is known only now.
        url = ready.partition(_READY)[2].partition(",")[0]
        try:
            check_spark(master)
        except PipelineError as error:
            _say(_PIPELINE, f"not started: {error}. Until it runs, changes wait in the log")
            report_failed_start(ServerAddress(url), error)
        else:
            route = [*command, "pipeline", "--server", url, "--master", master]
            supervisor.start(Part(_PIPELINE, route, is_essential=False))
    code = supervisor.run()
    if code:
        raise typer.Exit(code if code > 0 else Exit.REFUSED)


def _say(part: str, line: str) -> None:
    say(f"{part:>8} | {line}")
