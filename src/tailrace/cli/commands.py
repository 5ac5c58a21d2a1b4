"""The `tailrace` command line: which commands there are."""

from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli.consume import consume
from tailrace.cli.dump import dump
from tailrace.cli.fsck import fsck
from tailrace.cli.groups import groups_app
from tailrace.cli.pipeline import pipeline
from tailrace.cli.publish import publish
from tailrace.cli.routes import routes_app
from tailrace.cli.serve import serve
from tailrace.cli.sql.command import sql
from tailrace.cli.tail import tail
from tailrace.cli.topics import topics_app
from tailrace.cli.up import up

_RUN = "Run it"
_USE = "Use it: these talk to a running server"
_LOOK = "Look at its folder"


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="tailrace",
        help="Durable topics fed by table changes: one process, one folder.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    app.command("up", rich_help_panel=_RUN)(up)
    app.command("serve", rich_help_panel=_RUN)(serve)
    app.command("pipeline", rich_help_panel=_RUN)(pipeline)
    app.command("sql", rich_help_panel=_USE)(sql)
    app.command("publish", rich_help_panel=_USE)(publish)
    app.command("consume", rich_help_panel=_USE)(consume)
    app.command("tail", rich_help_panel=_USE)(tail)
    app.add_typer(topics_app(), name="topics", rich_help_panel=_USE)
    app.add_typer(groups_app(), name="groups", rich_help_panel=_USE)
    app.add_typer(routes_app(), name="routes", rich_help_panel=_USE)
    app.command("fsck", rich_help_panel=_LOOK)(fsck)
    app.command("dump", rich_help_panel=_LOOK)(dump)
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
