"""Faults of the disk: power cuts, failed and slow syncs, a full disk, torn tails and bit rot."""

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


def power(testbed: Testbed, choice: random.Random) -> None:
    """What was not synced is gone. The server is frozen while its disk is copied, so that it acknowledges nothing."""
    with testbed.fault("power", down=True):
        testbed.server.freeze()
        testbed.disk.cut_power()
        testbed.server.kill()
        testbed.disk.restore_power()
        testbed.inspect()
        testbed.start()


def failed_sync(testbed: Testbed, choice: random.Random) -> None:
    """One sync fails: the server must not go on."""
    with testbed.fault("failed-sync", down=True):
        testbed.shim.fail_syncs(1)
        try:
            code = testbed.server.wait(NOTICE_SECONDS)
        except ServerError:
            code = testbed.server.kill()
        testbed.shim.fail_syncs(0)
        testbed.inspect()
        testbed.start()
    if code != ExitCode.STORAGE_FAILED:
        raise RuntimeError(f"after a failed sync the server ended with {code}, not with {ExitCode.STORAGE_FAILED.value}")


def slow_syncs(testbed: Testbed, choice: random.Random) -> None:
    seconds = choice.uniform(*SLOW_SYNC_SECONDS)
    with testbed.fault("slow-syncs", f"{seconds * 1000:.0f} ms each"):
        testbed.shim.slow_syncs(seconds)
        time.sleep(choice.uniform(2, 6))
        testbed.shim.slow_syncs(0)


def full(testbed: Testbed, choice: random.Random) -> None:
    """The disk is full, and in one of three cases the server is killed, too."""
    dies = choice.random() < 1 / 3
    with testbed.fault("full", "and killed" if dies else "", down=dies):
        testbed.disk.fill()
        time.sleep(choice.uniform(*FULL_SECONDS))
        if dies:
            testbed.server.kill()
        testbed.disk.free_space()
        if dies:
            testbed.inspect()
            testbed.start()


def torn(testbed: Testbed, choice: random.Random) -> None:
    """A write that was under way at a crash left something, but not what was written."""
    with testbed.fault("torn", down=True):
        testbed.server.kill()
        last = segment_files(testbed.disk.folder)[-1]
        with last.open("ab") as file:
            file.write(_remains(last, choice))
        testbed.inspect()
        testbed.start()


def rot(testbed: Testbed, choice: random.Random) -> None:
    """One bit flips in a copy of the folder, and must be found; the run goes on with the original."""
    copy = testbed.home / "rotten"
    with testbed.fault("rot", down=True):
        testbed.server.kill()
        shutil.copytree(testbed.disk.folder, copy)
        try:
            if _flip_a_bit(copy, choice):
                testbed.inspect(copy, damaged=True)
        finally:
            shutil.rmtree(copy)
        testbed.inspect()
        testbed.start()


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
    """Flip a bit in the first half of a segment, so that later frames show that the damaged one was durable."""
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
