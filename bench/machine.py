"""The machine and the commit that figures were measured on."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tailrace import __version__

_MEASURED = ("src", "bench", "pyproject.toml", "requirements.lock", ":(exclude)bench/results", ":(exclude)bench/notes.md")
"""Changes to other files do not affect figures."""
_CLOCK_BITS, _CPU_CLOCK = 3, 2
"""How Linux makes the number of a process's CPU clock of its id, as clock_getcpuclockid does."""


def facts(folder: Path) -> Mapping[str, str]:
    """Return facts about the machine, without its name and its paths."""
    return {
        "Tailrace": __version__,
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "kernel": _numbers(f"{platform.system()} {platform.release()}"),
        "Python": platform.python_version(),
        "file system": _file_system(folder),
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def load() -> float:
    """Return the load of the machine, to tell a quiet run from a disturbed one."""
    return round(os.getloadavg()[0], 1)


def exact_cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a running process, in nanosecond resolution.

    The clock of `psutil` ticks a hundred times a second: too coarse for a server that needs a microsecond for a message.
    """
    return time.clock_gettime_ns((~pid << _CLOCK_BITS) | _CPU_CLOCK) / 1e9


def commit(root: Path) -> str:
    """Return the commit of the measured code."""
    found = _git(root, "rev-parse", "--short=10", "HEAD")
    if found is None:
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *_MEASURED)
    return f"{found} with changes" if changed else found


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _numbers(release: str) -> str:
    """Return the version without a vendor's suffix."""
    found = re.match(r"\w+ [\d.]+\d", release)
    return found[0] if found else release


def _file_system(folder: Path) -> str:
    path = folder.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next(str(mounts[parent]) for parent in (path, *path.parents) if parent in mounts)
