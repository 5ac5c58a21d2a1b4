"""`tailrace pipeline`: routes table changes to topics, on Spark."""

import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, ServerOption
from tailrace.cli.errors import ExitCode
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.model.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.cli.settings import PipelineSection
    from tailrace.model.pipeline import PipelineReport
    from tailrace.pipeline.connection import ServerAddress

_PROGRESS_SECONDS = 5.0


_ORPHAN_SECONDS = 10.0
"""How long it may take to stop when its parent has ended: it deletes its temporary files, and Java ends after it."""

LatencyOption = Annotated[
    # `Latency` of `model/pipeline.py`, which would load msgspec for `--help`.
    Literal["batch", "realtime"] | None,
    typer.Option(
        "--latency",
        help="batch: micro-batches, on PyPI and Java alone. realtime: a few milliseconds, with Spark's Kafka connector."
        " Without it, what ALTER PIPELINE has set.",
    ),
]
JarsOption = Annotated[
    Path | None,
    typer.Option("--jars", metavar="DIR", help="For realtime: a folder with the jars of Spark's Kafka connector."),
]
PackagesOption = Annotated[
    str | None,
    typer.Option("--packages", metavar="NAMES", help="Packages that Spark downloads, for realtime: its Kafka connector."),
]


def pipeline(
    server: ServerOption = DEFAULT_SERVER,
    master: Annotated[
        str,
        typer.Option(
            "--master", metavar="URL", help="Where Spark runs: local[*] is this machine, spark://host:7077 a cluster."
        ),
    ] = "local[*]",
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its checkpoint; it may be lost without harm."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Route the changes that exist now, then exit.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a pipeline that is running; it can publish nothing more and stops.")
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file", metavar="FILE", help="Authorities to trust for an https:// server, as PEM, on every machine."
        ),
    ] = None,
    latency: LatencyOption = None,
    jars: JarsOption = None,
    packages: PackagesOption = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="The server's Kafka address, if Spark needs another one.")
    ] = None,
    batch_rows: Annotated[int, typer.Option("--batch-rows", metavar="N", min=1, help="Most changes in one batch.")] = 200_000,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings in TOML, of the section pipeline; flags override them."),
    ] = None,
) -> None:
    """Route table changes to topics, on Spark.

    Needs a running server, and PySpark with Java
    (pip install 'tailrace\\[spark]'). May be stopped or killed at any time:
    the server keeps its progress, and every change reaches its topics
    exactly once.

    [bold]Examples[/]
    tailrace pipeline
    tailrace pipeline --server http://db:8080 --master spark://10.0.0.7:7077
    tailrace pipeline --once
    tailrace pipeline --latency realtime --jars connector/
    """
    from tailrace.cli.settings import resolve_pipeline
    from tailrace.model.errors import TailraceError
    from tailrace.pipeline.connection import ServerAddress
    from tailrace.pipeline.errors import PipelineError

    end_with_parent_if_asked(_ORPHAN_SECONDS)
    logging.basicConfig(level=logging.WARNING, format="tailrace: %(message)s", stream=sys.stderr)
    # It logs long stack traces of failed batches, for which we print one line of our own; some of them to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    try:
        address = ServerAddress(server, None if ca_file is None else str(ca_file.absolute())).checked()
        section = resolve_pipeline(config, latency=latency, jars=jars, packages=packages)
        spark = _start_spark(master, address, section)
        from tailrace.pipeline.router import Router, RouterSettings
        from tailrace.pipeline.table_changes import TableChanges

        is_realtime = None if section.latency is None else section.latency == "realtime"
        settings = RouterSettings(address, checkpoint, take_over=take_over, is_realtime=is_realtime, kafka=kafka)
        source = TableChanges(address, batch_rows, settings.retry_seconds)
        router = Router(spark, source, settings, RoutingProgress())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: router.stop())
        running = f"the pipeline is running: table changes at {server} go to their topics"
        router.run(once=once, on_lease=lambda: print_status(running))
        spark.stop()
    except (PipelineError, TailraceError) as error:
        print_error(f"tailrace: {error}")
        raise typer.Exit(ExitCode.REFUSED) from None
    print_status("stopped")


def check_connector_if_needed(section: "PipelineSection") -> None:
    """Raise an error that says what to do if Spark's Kafka connector is asked for and nothing brings it."""
    if section.latency == "realtime" or (section.latency is None and section.jars is not None):
        from tailrace.pipeline.realtime import check_connector

        check_connector(None if section.jars is None else Path(section.jars), section.packages)


def _start_spark(master: str, address: "ServerAddress", section: "PipelineSection") -> "SparkSession":
    from tailrace.pipeline.connection import check_server
    from tailrace.pipeline.errors import SparkError
    from tailrace.pipeline.lease import report_failed_start
    from tailrace.pipeline.session import check_master_answers, check_spark, spark_session

    try:
        # Before Java is started, which takes a while.
        java = check_spark(master)
        check_connector_if_needed(section)
        check_server(address)
        check_master_answers(master)
        from tailrace.pipeline.daemon import load_kernels

        print_status(f"starting Spark at {master}, on Java {java.version} ({java.name})")
        # While Java starts, because both take a while, and before the first tasks, which would each compile them again.
        loading = threading.Thread(target=load_kernels, daemon=True)
        loading.start()
        jars = None if section.jars is None else Path(section.jars)
        spark = spark_session(master, jars=jars, packages=section.packages)
        loading.join()
    except SparkError as error:
        report_failed_start(address, error)
        raise
    return spark


class RoutingProgress:
    """Prints a line every few seconds, because small batches come several times a second."""

    def __init__(self) -> None:
        self._printed_at = 0.0
        self._printed_rows = 0

    def __call__(self, report: "PipelineReport") -> None:
        now = time.monotonic()
        is_soon = self._printed_rows > 0 and now - self._printed_at < _PROGRESS_SECONDS
        if report.rows == self._printed_rows or is_soon:
            return
        speed = f"{counted(round(report.rows_per_second), 'change')}/s"
        letters = f", {report.dead_letters:,} to dead letters" if report.dead_letters else ""
        routed = f"{counted(report.rows, 'change')} routed so far{letters}"
        routes = counted(report.routes, "route")
        if report.mode == "real-time":
            print_status(f"real time: {routed}; now {speed} for {routes}")
        else:
            print_status(
                f"batch {report.batch}: {routed}; the last batch took {report.batch_seconds:.2f} s for {routes} ({speed})"
            )
        self._printed_at, self._printed_rows = now, report.rows
