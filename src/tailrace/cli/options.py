"""Flags that the commands which talk to a server have in common."""

from typing import Annotated

import typer

from tailrace.cli.formats import MessageFormat

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
