"""Faults of the server's process: killed, frozen, stopped, and dead at a named place."""

import random
import signal
import time

from chaos.serving import ServerError
from chaos.stage import Stage
from tailrace.model.killpoint import KILLPOINTS, TABLE_KILLPOINTS

PAUSE_SECONDS = (0.1, 4.0)
REACH_SECONDS = 4.0
"""How long an armed server is given to reach its kill point."""

_OFTEN = tuple(name for name in KILLPOINTS if not name.startswith(("clean.", "roll.", "checkpoint.")))


def kill(stage: Stage, choice: random.Random) -> None:
    with stage.fault("kill", down=True):
        stage.server.kill()
        stage.inspect()
        stage.start()


def pause(stage: Stage, choice: random.Random) -> None:
    seconds = choice.uniform(*PAUSE_SECONDS)
    with stage.fault("pause", f"{seconds:.1f} s"):
        stage.server.freeze()
        time.sleep(seconds)
        stage.server.signal(signal.SIGCONT)


def stop(stage: Stage, choice: random.Random) -> None:
    with stage.fault("stop", down=True):
        stage.stop()
        stage.inspect()
        stage.start()


def killpoint(stage: Stage, choice: random.Random) -> None:
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
