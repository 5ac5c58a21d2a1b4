"""The Spark driver is killed, with all that it has started, and a new one takes over."""

import random
import time

from chaos.stage import Stage


def driver(stage: Stage, choice: random.Random) -> None:
    with stage.fault("driver"):
        stage.pipeline.kill_and_start()
        # The new one needs a while to begin, and is to be killed in its work, too.
        time.sleep(choice.uniform(5, 15))
