"""What the disk of a writer holds at several moments of its life, as a power cut would leave it."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.child import WriterProcess
from tests.support.history import Event
from tests.support.powercut import cut_power, make_image, mounted


class PowerCut(NamedTuple):
    image: Path
    events: Sequence[Event]
    """What the writer had said when the power went."""


def cut_while_writing(
    home: Path,
    start: Callable[[Path], WriterProcess],
    wait_until_ready: Callable[[WriterProcess], object],
    pauses: Iterable[float],
) -> list[PowerCut]:
    """Freeze one writer after each of these pauses, in seconds, and keep what its disk holds each time."""
    image = make_image(home / "disk.img")
    cuts = []
    with mounted(image, home / "disk") as disk:
        writer = start(disk / "data")
        try:
            wait_until_ready(writer)
            for number, pause in enumerate(pauses):
                time.sleep(pause)
                writer.stop()
                copy = cut_power(image, home / f"cut-{number}.img")
                writer.drain()
                cuts.append(PowerCut(copy, list(writer.events)))
                writer.go_on()
        finally:
            writer.kill()
    return cuts
