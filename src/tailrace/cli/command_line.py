"""In which forms commands print. Apart from the code that does it, so that `--help` is quick."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


class RowFormat(StrEnum):
    """Rows of SQL."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class MessageFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    VALUE = "value"


class CommandGroup(typer.Typer):
    """Commands below one name."""

    def __init__(self, summary: str) -> None:
        super().__init__(
            help=summary,
            cls=_Group,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
        )

    def add(self, name: str, run: Callable[..., None], panel: str | None = None) -> None:
        """A command; its docstring is its help. `panel` is the heading that it is listed under."""
        self.command(name, cls=_Command, rich_help_panel=panel)(run)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


DEFAULT_SERVER = "http://127.0.0.1:8080"

ServerOption = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TAILRACE_SERVER", help="The HTTP address of the server.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object in a line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Stop after so many.")]
FormatOption = Annotated[
    MessageFormat | None,
    typer.Option("--format", help="value prints nothing else. By default text on a terminal and JSON elsewhere."),
]
PartitionOption = Annotated[int | None, typer.Option("--partition", metavar="P", min=0, help="Only this partition.")]
SkipCorruptOption = Annotated[
    bool, typer.Option("--skip-corrupt", help="Go on without stored batches that can't be decoded, and say which.")
]
