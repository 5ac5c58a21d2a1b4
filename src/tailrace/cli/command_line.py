"""What all commands have in common: Typer with our defaults, shared flags, and output formats.

Typer shows the type of every option in its help, `<bool>` behind a flag too, which reads as if the flag took a value; so the
classes here hide it. Imported for `--help`: nothing heavy may be imported here.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


class CommandGroup(typer.Typer):
    """The commands below one name, such as `tailrace topics`."""

    def __init__(self, summary: str) -> None:
        super().__init__(
            help=summary,
            cls=_CommandGroup,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
        )

    def add(self, name: str, run: Callable[..., None], panel: str | None = None) -> None:
        """Add a command, whose docstring is its help. `panel` is the heading that it is listed under."""
        self.command(name, cls=_Command, rich_help_panel=panel)(run)

    def add_default(self, run: Callable[..., None]) -> None:
        """Set what the name of the group does alone. `run` is also called before each command, whose name is in its context."""
        self.callback(cls=_CommandGroup, help=inspect.getdoc(run), invoke_without_command=True, no_args_is_help=False)(run)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class _CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class RowFormat(StrEnum):
    """How `tailrace sql` prints rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class MessageFormat(StrEnum):
    """How `tailrace consume` and `tailrace tail` print messages."""

    TEXT = "text"
    JSON = "json"
    VALUE = "value"


DEFAULT_SERVER = "http://127.0.0.1:8080"

ServerOption = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TAILRACE_SERVER", help="The HTTP address of the server.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Stop after this many messages.")]
FormatOption = Annotated[
    MessageFormat | None,
    typer.Option("--format", help="value prints only values. By default text on a terminal and JSON elsewhere."),
]
PartitionOption = Annotated[int | None, typer.Option("--partition", metavar="P", min=0, help="Only this partition.")]
SkipCorruptOption = Annotated[
    bool, typer.Option("--skip-corrupt", help="Skip stored batches that can't be decoded, and print which.")
]
