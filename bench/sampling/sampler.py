"""py-spy beside a process: looks a hundred times a second which thread holds Python's lock, and adds up where it was.

What runs without the lock, as writes, syncs and waits do, is not counted: threads that wait can't be told from those that work
otherwise.
"""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.peers.contract import PeerFailure
from bench.peers.kafka_jars import NotObtainable
from bench.profile import Profile, Share

_PER_SECOND = 100
_PATIENCE_SECONDS = 30
_MOST_FUNCTIONS = 15
_LEAST_SHARE = 0.01
_WAITING = {("manager", "daemon.py")}
"""Spark's daemons wait here for the next worker that they are to fork; py-spy takes them for busy."""


class Watched(NamedTuple):
    """A process that is sampled."""

    pid: int
    has_workers: bool = False
    """Whether its children count too."""


def sample(name: str, beside: str, watched: Watched, seconds: float, folder: Path, work: Callable[[], object]) -> Profile:
    """Have the work done over and over until there are samples of so many seconds."""
    out = folder / "samples"
    command = [py_spy(), "record", "--format", "raw", "--function", "--output", str(out), "--rate", str(_PER_SECOND)]
    command.append("--gil")
    command += ["--duration", f"{seconds:.0f}", "--pid", str(watched.pid), *(["--subprocesses"] if watched.has_workers else [])]
    spy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while spy.poll() is None:
            work()
        _, said = spy.communicate(timeout=_PATIENCE_SECONDS)
    finally:
        spy.kill()
        spy.wait()
    if spy.returncode != 0 or not out.exists():
        raise PeerFailure(f"py-spy could not sample {name}: {said.strip()[-500:]}")
    return profile_of(name, beside, out.read_text(), round(seconds * _PER_SECOND))


def py_spy() -> str:
    found = Path(sys.executable).with_name("py-spy")
    program = str(found) if found.exists() else shutil.which("py-spy")
    if program is None:
        raise NotObtainable("py-spy is not installed; `pip install py-spy` brings it")
    return program


def profile_of(name: str, beside: str, stacks: str, looks: int) -> Profile:
    """Of stacks as py-spy writes them: frames from the outermost on, parted by `;`, and a count."""
    functions: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, times = line.rpartition(" ")
        function, file = _read_frame(stack.rpartition(";")[2])
        if (function, file) in _WAITING:
            continue
        functions[f"{function} ({file})"] += int(times)
        rooms[_room(file)] += int(times)
    total = functions.total()
    return Profile(
        name=name,
        beside=beside,
        looks=looks,
        samples=total,
        rooms=_shares(rooms, total),
        functions=_shares(functions, total)[:_MOST_FUNCTIONS],
    )


def _shares(counted: "Counter[str]", total: int) -> list[Share]:
    return [Share(name, times / total) for name, times in counted.most_common() if times >= _LEAST_SHARE * total]


def _read_frame(frame: str) -> tuple[str, str]:
    """`name (path:line)`: the name, and the path without the line."""
    function, _, place = frame.rpartition(" (")
    return function or frame, place.rstrip(")").partition(":")[0]


def _room(file: str) -> str:
    """A room of Tailrace, or the package or module of others."""
    parts = Path(file).with_suffix("").parts
    if "tailrace" in parts:
        inside = parts[parts.index("tailrace") + 1 :]
        return f"tailrace.{inside[0]}" if inside else "tailrace"
    return parts[0] if parts else "unknown"
