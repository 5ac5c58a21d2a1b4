"""Faults of the disk: power cuts, failed and slow syncs, no room, torn tails and rot."""

import random
import shutil
import time
from pathlib import Path

from chaos.server_process import ServerError
from chaos.testbed import Testbed
from tailrace.cli.errors import ExitCode
from tests.support.folders import frames_of, segment_files

SLOW_SYNC_SECONDS = (0.02, 0.4)
FULL_SECONDS = (1.5, 4.0)
NOTICE_SECONDS = 10.0
_FEWEST_FRAMES = 20


def power(stage: Testbed, choice: random.Random) -> None:
    """What was not synced is gone. The server stands still while its disk is copied, so no ack slips by."""
    with stage.fault("power", down=True):
        stage.server.freeze()
        stage.disk.cut_power()
        stage.server.kill()
        stage.disk.come_back()
        stage.inspect()
        stage.start()


def failed_sync(stage: Testbed, choice: random.Random) -> None:
    """One sync fails: the server must not go on."""
    with stage.fault("failed-sync", down=True):
        stage.shim.fail_syncs(1)
        try:
            code = stage.server.wait(NOTICE_SECONDS)
        except ServerError:
            code = stage.server.kill()
        stage.shim.fail_syncs(0)
        stage.inspect()
        stage.start()
    if code != ExitCode.STORAGE_FAILED:
        raise RuntimeError(f"after a failed sync the server ended with {code}, not with {ExitCode.STORAGE_FAILED.value}")


def slow_syncs(stage: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*SLOW_SYNC_SECONDS)
    with stage.fault("slow-syncs", f"{seconds * 1000:.0f} ms each"):
        stage.shim.slow_syncs(seconds)
        time.sleep(choice.uniform(2, 6))
        stage.shim.slow_syncs(0)


def full(stage: Testbed, choice: random.Random) -> None:
    """No room, and in one of three cases a kill on top of it."""
    dies = choice.random() < 1 / 3
    with stage.fault("full", "and killed" if dies else "", down=dies):
        stage.disk.fill()
        time.sleep(choice.uniform(*FULL_SECONDS))
        if dies:
            stage.server.kill()
        stage.disk.make_room()
        if dies:
            stage.inspect()
            stage.start()


def torn(stage: Testbed, choice: random.Random) -> None:
    """A write that was under way at a crash left something, but not what was written."""
    with stage.fault("torn", down=True):
        stage.server.kill()
        last = segment_files(stage.disk.folder)[-1]
        with last.open("ab") as file:
            file.write(_remains(last, choice))
        stage.inspect()
        stage.start()


def rot(stage: Testbed, choice: random.Random) -> None:
    """One bit flips in a copy of the folder, and must be found; the run goes on with the original."""
    copy = stage.home / "rotten"
    with stage.fault("rot", down=True):
        stage.server.kill()
        shutil.copytree(stage.disk.folder, copy)
        try:
            if _flip_a_bit(copy, choice):
                stage.inspect(copy, damaged=True)
        finally:
            shutil.rmtree(copy)
        stage.inspect()
        stage.start()


def _remains(segment: Path, choice: random.Random) -> bytes:
    frames = frames_of(segment)
    match choice.randrange(3):
        case 0:
            return choice.randbytes(choice.randint(1, 5000))
        case 1:
            return bytes(choice.randint(1, 5000))
        case _:
            data = segment.read_bytes()
            return data[-frames[-1].size : -1] if frames else b"\0"


def _flip_a_bit(folder: Path, choice: random.Random) -> bool:
    """In the first half of a segment, so that good frames follow which know the damaged one to have been durable."""
    segment = choice.choice(segment_files(folder))
    frames = frames_of(segment)
    if len(frames) < _FEWEST_FRAMES:
        return False
    frame = frames[choice.randrange(len(frames) // 2)]
    at = frame.position - int(segment.name.partition("-")[0]) + choice.randrange(frame.size)
    data = bytearray(segment.read_bytes())
    data[at] ^= 1 << choice.randrange(8)
    segment.write_bytes(data)
    return True
