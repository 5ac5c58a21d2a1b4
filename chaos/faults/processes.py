"""Faults of processes: a server that is killed, frozen or stopped, a killed Spark driver, and a wall clock that jumps."""

import random
import signal
import time
from contextlib import suppress

from chaos.server_process import ServerError
from chaos.testbed import Testbed
from tailrace.model.killpoint import KILLPOINTS, TABLE_KILLPOINTS
from tests.support.captured_source import kill_captures
from tests.support.shadow_pair import kill_copiers

PAUSE_SECONDS = (0.1, 4.0)
REACH_SECONDS = 4.0
"""How long an armed server is given to reach its kill point."""

_OFTEN = tuple(name for name in KILLPOINTS if not name.startswith(("clean.", "roll.", "checkpoint.")))


def kill(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("kill", down=True):
        testbed.server.kill()
        testbed.inspect()
        testbed.start()


def pause(testbed: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*PAUSE_SECONDS)
    with testbed.fault("pause", f"{seconds:.1f} s"):
        testbed.server.freeze()
        time.sleep(seconds)
        testbed.server.signal(signal.SIGCONT)


def stop(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("stop", down=True):
        testbed.stop()
        testbed.inspect()
        testbed.start()


def killpoint(testbed: Testbed, choice: random.Random) -> None:
    """Restart the server so that it dies at a kill point, and start it again."""
    names = _OFTEN if choice.random() < 0.6 else KILLPOINTS + TABLE_KILLPOINTS
    name = choice.choice(names)
    count = choice.randint(1, 40) if name in _OFTEN else 1
    with testbed.fault("killpoint", f"{name}:{count}", down=True):
        testbed.server.kill()
        testbed.server.launch({"TAILRACE_KILLPOINT": f"{name}:{count}"})
        try:
            testbed.server.wait(REACH_SECONDS)
        except ServerError:
            testbed.server.kill()
        testbed.inspect()
        testbed.start()


def driver(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("driver"):
        testbed.pipeline.kill_and_start()
        # The new driver needs a while to begin, and is to be killed at work, too.
        time.sleep(choice.uniform(5, 15))


def java(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("java"):
        testbed.pipeline.kill_java()
        time.sleep(choice.uniform(5, 15))


def database(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("database"):
        testbed.database.kill_and_start()
        # The capture needs a moment to come back, and is to be interrupted at work, too.
        time.sleep(choice.uniform(0.5, 4))


def capture(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("capture"):
        with suppress(ServerError):
            kill_captures(testbed.server.pid)
        time.sleep(choice.uniform(0.5, 4))


def other_kafka(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("kafka"):
        testbed.other_kafka.kill_and_start()
        # The copy needs a moment to come back, and is to be interrupted at work, too.
        time.sleep(choice.uniform(0.5, 4))


def copier(testbed: Testbed, choice: random.Random) -> None:
    with testbed.fault("copier"):
        with suppress(ServerError):
            kill_copiers(testbed.server.pid)
        time.sleep(choice.uniform(0.5, 4))


JUMPS_SECONDS = (-3000, -600, -5, 5, 600, 3000)
"""Less than an hour, beyond which timestamps of clients are too far in the future and are refused."""


def jump(testbed: Testbed, choice: random.Random) -> None:
    seconds = choice.choice(JUMPS_SECONDS)
    with testbed.fault("clock", f"{seconds:+} s"):
        testbed.shim.move_clock(seconds)
        time.sleep(choice.uniform(1, 4))
        testbed.shim.move_clock(0)
