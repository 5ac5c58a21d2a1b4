"""The process of `tailrace serve`: its flags, its ready line, and how it ends.

The command line's libraries (Typer, and pydantic, which it loads) take 10 MB that a server would keep for its whole life. So
`main` first tries `read_plain_flags`, and loads Typer only for a command line that this does not understand.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

from tailrace.cli.errors import ExitCode, storage_failures
from tailrace.cli.log_format import LogFormat, configure_logging
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.commit import Durability

if TYPE_CHECKING:
    from tailrace.cli.settings import ServerSettings
    from tailrace.server import Ready

STOP_SECONDS = 9.0
"""How long a stop may take before the process is ended by force."""
SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while the event loop waits for it. Python's default of 5 ms would delay one produce
several times."""

_FLAGS_WITH_VALUE = {
    "--data": "data",
    "--http": "http",
    "--kafka": "kafka",
    "--advertise": "advertise",
    "--durability": "durability",
    "--config": "config",
    "--accept-loss-after": "accept_loss_after",
    "--log-format": "log_format",
}
_FLAGS_WITHOUT_VALUE = {
    "--allow-remote": "allow_remote",
    "--no-authentication": "no_authentication",
    "--no-tls": "no_tls",
}


class ServeFlags(NamedTuple):
    """The flags of `tailrace serve`; `None` for those that are not given."""

    data: str | None = None
    http: str | None = None
    kafka: str | None = None
    advertise: str | None = None
    durability: Durability | None = None
    config: str | None = None
    allow_remote: bool = False
    no_authentication: bool = False
    no_tls: bool = False
    log_format: LogFormat | None = None
    accept_loss_after: int | None = None


def read_plain_flags(arguments: Sequence[str]) -> ServeFlags | None:
    """Read `serve --flag value ...`; return `None` for any other command line, which Typer then reads or rejects.

    Fast path of `serve` in `cli/serve.py`: taken when each flag is known, is given once and has a plain value.
    `tests/unit/cli/test_serve.py` holds both equal.
    """
    if not arguments or arguments[0] != "serve":
        return None
    given: dict[str, str | int | bool] = {}
    words = iter(arguments[1:])
    for word in words:
        flag, has_value, value = word.partition("=")
        if word in _FLAGS_WITHOUT_VALUE:
            name = _FLAGS_WITHOUT_VALUE[word]
            read: str | int | bool | None = True
        elif flag in _FLAGS_WITH_VALUE:
            name = _FLAGS_WITH_VALUE[flag]
            read = _plain_value(name, value if has_value else next(words, ""))
        else:
            return None
        if read is None or name in given:
            return None
        given[name] = read
    return ServeFlags(**given)  # type: ignore[arg-type]


def _plain_value(name: str, text: str) -> str | int | None:
    """Return the value of a flag, or `None` if Typer has to judge it."""
    if not text or text.startswith("-"):
        return None
    if name == "accept_loss_after":
        return int(text) if text.isascii() and text.isdecimal() else None
    if name == "durability":
        return text if text in get_args(Durability) else None
    if name == "log_format":
        return text if text in get_args(LogFormat) else None
    return text


@storage_failures()
def run_server(flags: ServeFlags) -> None:
    """Run a server until it is told to stop."""
    from pathlib import Path

    from tailrace.cli.settings import Configuration, read_configuration, resolve_settings
    from tailrace.model.parent_process import end_with_parent_if_asked
    from tailrace.model.server_credentials import credentials_from_parent

    # Not into the environment, where processes that the server starts would find it.
    given = credentials_from_parent()
    # At once: what is not acknowledged by then may be lost in any case, and a new server can have the folder and the ports.
    end_with_parent_if_asked()
    settings = resolve_settings(
        read_configuration(Path(flags.config)) if flags.config else Configuration(),
        data=Path(flags.data) if flags.data else None,
        http=flags.http,
        kafka=flags.kafka,
        advertise=flags.advertise,
        durability=flags.durability,
        allow_remote=flags.allow_remote,
        no_authentication=flags.no_authentication,
        no_tls=flags.no_tls,
        log_format=flags.log_format,
    )
    configure_logging(settings.log_format)
    _run(settings, flags.accept_loss_after, None if given is None else given.token)


def _run(settings: "ServerSettings", accept_loss_after: int | None, secret: str | None) -> None:
    import uvloop

    from tailrace import __version__
    from tailrace.model.clock import SystemClock
    from tailrace.server import Server

    def announce(ready: "Ready") -> None:
        replayed = f" with {ready.replayed_bytes:,} bytes replayed" if ready.replayed_bytes else ""
        scheme = "https" if ready.is_tls else "http"
        print_status(
            f"Tailrace {__version__} is ready at {scheme}://{ready.http}, Kafka at {ready.kafka}, data in {settings.data},"
            f" durability {settings.durability}, opened in {ready.open_seconds:.2f} s{replayed}"
        )

    server = Server(
        folder=settings.data,
        http=settings.http,
        kafka=settings.kafka,
        advertise=settings.advertise,
        durability=settings.durability,
        broker=settings.broker,
        kafka_settings=settings.kafka_settings,
        security=settings.security,
        limits=settings.limits,
        clock=SystemClock(),
        accept_loss_after=accept_loss_after,
        secret=secret,
        on_ready=announce,
        on_stop=_end_by_force_later,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    failure = uvloop.run(server.run())
    if failure is not None:
        raise failure


def _end_by_force_later() -> None:
    def end() -> None:
        print_error(f"tailrace: not stopped within {STOP_SECONDS:g} s; ended by force. What was acknowledged is safe")
        os._exit(ExitCode.STOP_TIMED_OUT)

    timer = threading.Timer(STOP_SECONDS, end)
    timer.daemon = True
    timer.start()
