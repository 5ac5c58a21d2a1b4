"""`tailrace pipeline`: routes table changes to topics, on Spark; and makes the archive that workers of a cluster need."""

import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, CommandGroup, ServerOption
from tailrace.cli.errors import CommandError, ExitCode, UsageError
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.model.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.cli.settings import PipelineSection
    from tailrace.model.pipeline import PipelineReport
    from tailrace.pipeline.connection import ServerAddress
    from tailrace.pipeline.snapshot_tasks import SnapshotsRead

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
ArchivesOption = Annotated[
    str | None,
    typer.Option(
        "--archives", metavar="FILE", help="For a cluster: the archive of tailrace pipeline package, which workers unpack."
    ),
]


def pipeline_app() -> CommandGroup:
    app = CommandGroup("Route table changes to topics, on Spark.")
    app.add_default(pipeline)
    app.add("package", package)
    return app


def pipeline(
    context: typer.Context,
    server: ServerOption = DEFAULT_SERVER,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Where Spark runs: local[*], the default, is this machine, spark://host:7077 a cluster.",
        ),
    ] = None,
    archives: ArchivesOption = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.executor.memory=2g; repeatable."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its checkpoint; it may be lost without harm."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Route the changes that exist now, then exit.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a pipeline that is running; it can publish nothing more and stops.")
    ] = False,
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
    tailrace pipeline --server http://db:8080 --master spark://10.0.0.7:7077 \\
      --archives tailrace-env.tar.gz
    tailrace pipeline --once
    tailrace pipeline --latency realtime --jars connector/
    """
    from tailrace.cli.settings import resolve_pipeline
    from tailrace.client.http11 import without_userinfo
    from tailrace.model.errors import TailraceError
    from tailrace.pipeline.connection import ServerAddress
    from tailrace.pipeline.errors import PipelineError

    if context.invoked_subcommand is not None:
        _refuse_flags_of_the_group(context)
        return
    end_with_parent_if_asked(_ORPHAN_SECONDS)
    logging.basicConfig(level=logging.WARNING, format="tailrace: %(message)s", stream=sys.stderr)
    # It logs long stack traces of failed batches, for which we print one line of our own; some of them to the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    try:
        address = ServerAddress(server.url, login=server.source).checked()
        section = resolve_pipeline(config, latency=latency, jars=jars, packages=packages, archives=archives)
        spark = _start_spark(master, address, section, _spark_settings(conf or []))
        from tailrace.pipeline.router import Router, RouterSettings
        from tailrace.pipeline.session import stop_session
        from tailrace.pipeline.table_changes import TableChanges

        is_realtime = None if section.latency is None else section.latency == "realtime"
        settings = RouterSettings(address, checkpoint, take_over=take_over, is_realtime=is_realtime, kafka=kafka)
        source = TableChanges(address, batch_rows, settings.retry_seconds)
        router = Router(spark, source, settings, RoutingProgress(), print_snapshots)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: router.stop())
        running = f"the pipeline is running: table changes at {without_userinfo(server.url)} go to their topics"
        router.run(once=once, on_lease=lambda: print_status(running))
        stop_session(spark)
    except (PipelineError, TailraceError) as error:
        print_error(f"tailrace: {error}")
        raise typer.Exit(ExitCode.REFUSED) from None
    print_status("stopped")


def check_connector_if_needed(section: "PipelineSection") -> None:
    """Raise an error that says what to do if Spark's Kafka connector is asked for and nothing brings it."""
    if section.latency == "realtime" or (section.latency is None and section.jars is not None):
        from tailrace.pipeline.realtime import check_connector

        check_connector(None if section.jars is None else Path(section.jars), section.packages)


def package(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it, by default ./tailrace-env.tar.gz.")
    ] = None,
) -> None:
    """Make the archive that workers of a Spark cluster need to run the pipeline.

    It has Tailrace and the packages that it needs, of this environment; a
    worker then needs nothing but a Python of the same version. Pass it with
    --archives.

    [bold]Examples[/]
    tailrace pipeline package
    tailrace pipeline package --output /srv/spark/tailrace-env.tar.gz
    """
    from tailrace.pipeline.errors import PipelineError
    from tailrace.pipeline.session import check_pyspark
    from tailrace.pipeline.worker_archive import DEFAULT_NAME, make_archive

    try:
        check_pyspark()
        made = make_archive(output or Path(DEFAULT_NAME), print_status)
    except PipelineError as error:
        raise CommandError(str(error)) from None
    print_status(f"{made.path} has {made.size / 1e6:.0f} MB, for {made.interpreter}. Start the pipeline with:")
    print_status(f"tailrace pipeline --master spark://HOST:7077 --archives {made.path}")


def _refuse_flags_of_the_group(context: typer.Context) -> None:
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None and getattr(context.get_parameter_source(parameter.name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise UsageError(f"{', '.join(given)} can't be used with tailrace pipeline {context.invoked_subcommand}; leave it out")


def _spark_settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("spark."):
            raise UsageError(f"--conf {setting} is not a setting of Spark, such as spark.executor.memory=2g")
        settings[name] = value
    return settings


def _start_spark(
    master: str | None, address: "ServerAddress", section: "PipelineSection", conf: dict[str, str]
) -> "SparkSession":
    from tailrace.pipeline.connection import check_server
    from tailrace.pipeline.errors import SparkError
    from tailrace.pipeline.kafka_login import share_password
    from tailrace.pipeline.lease import report_failed_start
    from tailrace.pipeline.session import check_master_answers, check_spark, chosen_master, spark_session
    from tailrace.pipeline.worker_archive import archive_uri

    try:
        # Before Java is started, which takes a while.
        master = chosen_master(master)
        java = check_spark(master)
        check_connector_if_needed(section)
        if section.archives is not None:
            archive_uri(section.archives)
        check_server(address)
        share_password(address)
        check_master_answers(master)
        from tailrace.pipeline.daemon import load_kernels

        print_status(f"starting Spark at {master}, on Java {java.version} ({java.name})")
        # While Java starts, because both take a while, and before the first tasks, which would each compile them again.
        loading = threading.Thread(target=load_kernels, daemon=True)
        loading.start()
        jars = None if section.jars is None else Path(section.jars)
        spark = spark_session(master, jars=jars, packages=section.packages, archives=section.archives, conf=conf)
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


def print_snapshots(read: "SnapshotsRead") -> None:
    rows, tasks = counted(read.rows, "row"), counted(read.tasks, "task")
    print_status(f"snapshots: {rows} read by {tasks} in {read.seconds:.1f} s")
