"""The server's life as whoever runs it sees it: one line when it takes requests, one if it fails, and an exit code."""

import os
import sys
import threading
from pathlib import Path

import uvloop

from tailrace import __version__
from tailrace.cli.exits import Exit
from tailrace.cli.hand_over import Flags
from tailrace.cli.settings import Configuration, Settings, read_configuration, settle
from tailrace.cli.status_lines import complain, say
from tailrace.model.clock import SystemClock
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.server import Ready, Server

STOP_SECONDS = 9.0
"""How long a stop may take before the process is ended by force."""
SWITCH_SECONDS = 0.0005
"""How long a thread that reads or decodes goes on while the event loop wants the interpreter. Python's own 5 ms come several
times in the way of one produce."""


def serve(flags: Flags) -> None:
    # At once: whatever is not acknowledged by then may be lost in any case, and a new server can have folder and ports.
    end_with_parent_if_asked()
    _run(
        settle(
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


def _run(settings: Settings, accept_loss_after: int | None) -> None:
    def announce(ready: Ready) -> None:
        replayed = f" with {ready.replayed_bytes:,} bytes read again" if ready.replayed_bytes else ""
        say(
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
        complain(f"tailrace: not finished {STOP_SECONDS:g} s after the stop; ended. What was acknowledged is safe")
        os._exit(Exit.STOP_TIMED_OUT)

    timer = threading.Timer(STOP_SECONDS, end)
    timer.daemon = True
    timer.start()
