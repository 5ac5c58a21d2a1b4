"""A wall clock that jumps, forwards or back, and returns. The steady clock of the machine does not."""

import random
import time

from chaos.stage import Stage

JUMPS_SECONDS = (-3000, -600, -5, 5, 600, 3000)
"""Below an hour: beyond it, timestamps of clients lie too far in the future and are refused, rightly."""


def jump(stage: Stage, choice: random.Random) -> None:
    seconds = choice.choice(JUMPS_SECONDS)
    with stage.fault("clock", f"{seconds:+} s"):
        stage.shim.move_clock(seconds)
        time.sleep(choice.uniform(1, 4))
        stage.shim.move_clock(0)
