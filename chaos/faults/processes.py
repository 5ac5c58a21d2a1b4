"""Faults of the server's process: killed, frozen, stopped, and dead at a named place."""

import random
import signal
import time

from chaos.server_process import ServerError
from chaos.testbed import Testbed
from tailrace.model.killpoint import KILLPOINTS, TABLE_KILLPOINTS

PAUSE_SECONDS = (0.1, 4.0)
REACH_SECONDS = 4.0
"""How long an armed server is given to reach its kill point."""

_OFTEN = tuple(name for name in KILLPOINTS if not name.startswith(("clean.", "roll.", "checkpoint.")))


def kill(stage: Testbed, choice: random.Random) -> None:
    with stage.fault("kill", down=True):
        stage.server.kill()
        stage.inspect()
        stage.start()


def pause(stage: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*PAUSE_SECONDS)
    with stage.fault("pause", f"{seconds:.1f} s"):
        stage.server.freeze()
        time.sleep(seconds)
        stage.server.signal(signal.SIGCONT)


def stop(stage: Testbed, choice: random.Random) -> None:
    with stage.fault("stop", down=True):
        stage.stop()
        stage.inspect()
        stage.start()


def killpoint(stage: Testbed, choice: random.Random) -> None:
    """Start it anew so that it dies at a named place, and start it again."""
    names = _OFTEN if choice.random() < 0.6 else KILLPOINTS + TABLE_KILLPOINTS
    name = choice.choice(names)
    count = choice.randint(1, 40) if name in _OFTEN else 1
    with stage.fault("killpoint", f"{name}:{count}", down=True):
        stage.server.kill()
        stage.server.launch({"TAILRACE_KILLPOINT": f"{name}:{count}"})
        try:
            stage.server.wait(REACH_SECONDS)
        except ServerError:
            stage.server.kill()
        stage.inspect()
        stage.start()


def driver(stage: Testbed, choice: random.Random) -> None:
    with stage.fault("driver"):
        stage.pipeline.kill_and_start()
        # The new one needs a while to begin, and is to be killed in its work, too.
        time.sleep(choice.uniform(5, 15))


JUMPS_SECONDS = (-3000, -600, -5, 5, 600, 3000)
"""Below an hour: beyond it, timestamps of clients lie too far in the future and are refused, rightly."""


def jump(stage: Testbed, choice: random.Random) -> None:
    seconds = choice.choice(JUMPS_SECONDS)
    with stage.fault("clock", f"{seconds:+} s"):
        stage.shim.move_clock(seconds)
        time.sleep(choice.uniform(1, 4))
        stage.shim.move_clock(0)
