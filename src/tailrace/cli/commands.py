"""The list of all `tailrace` commands."""

from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli.capture import capture
from tailrace.cli.command_line import CommandGroup
from tailrace.cli.consume import consume
from tailrace.cli.copy import copy
from tailrace.cli.groups import groups_app
from tailrace.cli.init import init
from tailrace.cli.offline import dump, fsck, salvage
from tailrace.cli.pipeline import pipeline_app
from tailrace.cli.publish import publish
from tailrace.cli.routes import routes_app
from tailrace.cli.serve import serve
from tailrace.cli.shadow import shadow_app
from tailrace.cli.snapshot import snapshot
from tailrace.cli.sql.command import sql
from tailrace.cli.tail import tail
from tailrace.cli.topics import topics_app
from tailrace.cli.up import up

_RUN = "Run"
_USE = "Use a running server"
_OFFLINE = "Check a data folder, without a server"


def build_app() -> CommandGroup:
    app = CommandGroup("Durable topics fed by table changes: one process, one folder.")
    app.callback()(_root)
    app.add("init", init, _RUN)
    app.add("up", up, _RUN)
    app.add("serve", serve, _RUN)
    app.add_typer(pipeline_app(), name="pipeline", rich_help_panel=_RUN)
    app.add("capture", capture, _RUN)
    app.add_typer(shadow_app(), name="shadow", rich_help_panel=_RUN)
    app.add("sql", sql, _USE)
    app.add("copy", copy, _USE)
    app.add("snapshot", snapshot, _USE)
    app.add("publish", publish, _USE)
    app.add("consume", consume, _USE)
    app.add("tail", tail, _USE)
    app.add_typer(topics_app(), name="topics", rich_help_panel=_USE)
    app.add_typer(groups_app(), name="groups", rich_help_panel=_USE)
    app.add_typer(routes_app(), name="routes", rich_help_panel=_USE)
    app.add("fsck", fsck, _OFFLINE)
    app.add("dump", dump, _OFFLINE)
    app.add("salvage", salvage, _OFFLINE)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass
