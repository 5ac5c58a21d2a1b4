"""Typer as all our commands use it: what they have in common, and help in which flags look like flags.

Typer shows the type of every option, `<bool>` behind a flag too, which reads as if it took a value.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class CommandLine(typer.Typer):
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
        return _with_bare_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _with_bare_flags(super().get_params(ctx))


def _with_bare_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
