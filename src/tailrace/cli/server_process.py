"""How `tailrace serve` becomes its server: the process begins anew, with its flags and without the command line.

The libraries that read a command line take 10 MB, and a server would keep them for its whole life. So once the flags are
read the program is executed again, as it was called, under the same process id; they come along in the environment. Whoever
starts, stops or watches the server sees one process.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple, NoReturn

import uvloop

from tailrace import __version__
from tailrace.cli.errors import ExitCode
from tailrace.cli.settings import Configuration, ServerSettings, read_configuration, resolve_settings
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.clock import SystemClock
from tailrace.model.commit import Durability
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.server import Ready, Server

_FLAGS = "TAILRACE_HANDED_OVER"


class ServeFlags(NamedTuple):
    """What was said on the command line of `tailrace serve`; nothing is what was not said."""

    data: str | None
    http: str | None
    kafka: str | None
    advertise: str | None
    durability: Durability | None
    config: str | None
    allow_remote: bool
    accept_loss_after: int | None


def hand_over(flags: ServeFlags) -> NoReturn:
    os.environ[_FLAGS] = json.dumps(flags)
    # The path and not its name: `python` may be found elsewhere, and a virtual environment is known by it.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  the same program, with its own words


def handed_over() -> ServeFlags | None:
    """What was read before the process began anew. Processes that it starts begin at the beginning."""
    handed = os.environ.pop(_FLAGS, None)
    return None if handed is None else ServeFlags(*json.loads(handed))


STOP_SECONDS = 9.0
"""How long a stop may take before the process is ended by force."""
SWITCH_SECONDS = 0.0005
"""How long a thread that reads or decodes goes on while the event loop wants the interpreter. Python's own 5 ms come several
times in the way of one produce."""


def run_server(flags: ServeFlags) -> None:
    # At once: whatever is not acknowledged by then may be lost in any case, and a new server can have folder and ports.
    end_with_parent_if_asked()
    _run(
        resolve_settings(
            read_configuration(Path(flags.config)) if flags.config else Configuration(),
            data=Path(flags.data) if flags.data else None,
            http=flags.http,
            kafka=flags.kafka,
            advertise=flags.advertise,
            durability=flags.durability,
            allow_remote=flags.allow_remote,
        ),
        flags.accept_loss_after,
    )


def _run(settings: ServerSettings, accept_loss_after: int | None) -> None:
    def announce(ready: Ready) -> None:
        replayed = f" with {ready.replayed_bytes:,} bytes read again" if ready.replayed_bytes else ""
        print_status(
            f"Tailrace {__version__} is ready at http://{ready.http}, Kafka at {ready.kafka}, data in {settings.data},"
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
        limits=settings.limits,
        clock=SystemClock(),
        accept_loss_after=accept_loss_after,
        on_ready=announce,
        on_stop=_end_by_force_later,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    failure = uvloop.run(server.run())
    if failure is not None:
        raise failure


def _end_by_force_later() -> None:
    def end() -> None:
        print_error(f"tailrace: not finished {STOP_SECONDS:g} s after the stop; ended. What was acknowledged is safe")
        os._exit(ExitCode.STOP_TIMED_OUT)

    timer = threading.Timer(STOP_SECONDS, end)
    timer.daemon = True
    timer.start()
