"""Faults between clients and the server, by a proxy in front of each of its ports: cuts, delays, silence, refusals."""

import random
import time

from chaos.stage import Stage
from tests.support.proxy import FaultyProxy

DELAY_SECONDS = (0.01, 0.25)
SILENT_SECONDS = (1.0, 4.0)


def cut(stage: Stage, choice: random.Random) -> None:
    """All connections are reset, a few times in a row."""
    times = choice.randint(1, 4)
    with stage.fault("cut", f"{times} times"):
        for _ in range(times):
            for network in _some(stage, choice):
                network.reset_connections()
            time.sleep(choice.uniform(0.02, 0.4))


def delay(stage: Stage, choice: random.Random) -> None:
    seconds = choice.uniform(*DELAY_SECONDS)
    with stage.fault("delay", f"{seconds * 1000:.0f} ms"):
        networks = _some(stage, choice)
        for network in networks:
            network.delay_seconds = seconds
        time.sleep(choice.uniform(2, 5))
        for network in networks:
            network.delay_seconds = 0


def half_open(stage: Stage, choice: random.Random) -> None:
    """Connections stay open and nothing comes through, as after a pulled cable; then they break."""
    seconds = choice.uniform(*SILENT_SECONDS)
    with stage.fault("half-open", f"{seconds:.1f} s"):
        networks = _some(stage, choice)
        for network in networks:
            network.is_silent = True
        time.sleep(seconds)
        for network in networks:
            network.is_silent = False
            network.reset_connections()


def refuse(stage: Stage, choice: random.Random) -> None:
    """Connections break, and for a while there are no new ones."""
    with stage.fault("refuse"):
        networks = _some(stage, choice)
        for network in networks:
            network.refuses = True
            network.reset_connections()
        time.sleep(choice.uniform(0.5, 3))
        for network in networks:
            network.refuses = False


def _some(stage: Stage, choice: random.Random) -> list[FaultyProxy]:
    both = [stage.kafka_network, stage.http_network]
    return both if choice.random() < 0.5 else [choice.choice(both)]
