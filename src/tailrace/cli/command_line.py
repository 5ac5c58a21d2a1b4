"""What all commands have in common: Typer with our defaults, shared flags, and output formats.

Typer shows the type of every option in its help, `<bool>` behind a flag too, which reads as if the flag took a value; so the
classes here hide it. Every command that uses a server takes the same flags to log in there, which are added here. Imported for
`--help`: nothing heavy may be imported here.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from tailrace.client.credentials import CredentialSource


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
        self.command(name, cls=_Command, rich_help_panel=panel)(_with_login(run))

    def add_default(self, run: Callable[..., None]) -> None:
        """Set what the name of the group does alone. `run` is also called before each command, whose name is in its context."""
        self.callback(cls=_CommandGroup, help=inspect.getdoc(run), invoke_without_command=True, no_args_is_help=False)(
            _with_login(run)
        )


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


def _with_login(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the flags of a server in place of its parameter `server`, if it has one."""
    signature = inspect.signature(run)
    if "server" not in signature.parameters:
        return run

    def with_login(*args: Any, server: str, **given: Any) -> None:
        login = {name: given.pop(name) for name in LOGIN_OPTIONS}
        run(*args, server=ServerLogin(server, **login), **given)

    flag = inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_SERVER.url)
    flags = [
        flag.replace(annotation=Annotated[str, _SERVER_FLAG]),
        *(flag.replace(name=name, default=None, annotation=kind) for name, kind in LOGIN_OPTIONS.items()),
    ]
    parameters = []
    for name, parameter in signature.parameters.items():
        kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += flags if name == "server" else kept
    with_login.__name__, with_login.__doc__ = run.__name__, run.__doc__
    with_login.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_login.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_login


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


class ServerLogin:
    """Where a server is, and where to find what to log in with: names of files, and never a secret itself."""

    def __init__(
        self,
        url: str,
        user: str | None = None,
        password_file: Path | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self.url = url
        self.user = user
        self.password_file = password_file
        self.token_file = token_file
        self.ca_file = ca_file

    @property
    def source(self) -> "CredentialSource":
        """Return where to find the credentials, for whom files have absolute names, as other processes need them."""
        from tailrace.client.credentials import CredentialSource

        def absolute(file: Path | None) -> str | None:
            return None if file is None else str(file.absolute())

        return CredentialSource(
            user=self.user,
            password_file=absolute(self.password_file),
            token_file=absolute(self.token_file),
            ca_file=absolute(self.ca_file),
        )


DEFAULT_SERVER = ServerLogin("http://127.0.0.1:8080")

ServerOption = Annotated[ServerLogin, "`--server`, and the flags of `LOGIN_OPTIONS`"]
"""What a command with a parameter `server` is given."""
_SERVER_FLAG = typer.Option("--server", metavar="URL", envvar="TAILRACE_SERVER", help="The HTTP address of the server.")
_PANEL = "Login"
LOGIN_OPTIONS: dict[str, Any] = {
    "user": Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Log in as this user. (TAILRACE_USER)", rich_help_panel=_PANEL),
    ],
    "password_file": Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="The file with its password. (TAILRACE_PASSWORD or TAILRACE_PASSWORD_FILE)",
            rich_help_panel=_PANEL,
        ),
    ],
    "token_file": Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Log in with the token in this file. (TAILRACE_TOKEN or TAILRACE_TOKEN_FILE)",
            rich_help_panel=_PANEL,
        ),
    ],
    "ca_file": Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Authorities to trust for an https:// server, as PEM. (TAILRACE_CA_FILE)",
            rich_help_panel=_PANEL,
        ),
    ],
}
"""What every command that uses a server takes, besides its address. The SDK reads the variables that their help names: not the
command line, which would prefer those of a server's environment to what the server gives to processes that it starts."""
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
