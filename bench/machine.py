"""What the figures were measured on, as far as it matters to them."""

import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tailrace import __version__


def facts(folder: Path) -> Mapping[str, str]:
    """Neither names nor paths of the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Tailrace": __version__,
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "kernel": _numbers(f"{platform.system()} {platform.release()}"),
        "Python": platform.python_version(),
        "file system": _file_system(folder),
    }


def load() -> str:
    """How busy the machine is, to tell a quiet run from a disturbed one."""
    return f"{os.getloadavg()[0]:.1f}"


def _numbers(release: str) -> str:
    """The release without what a vendor added to it."""
    found = re.match(r"\w+ [\d.]+\d", release)
    return found[0] if found else release


def _file_system(folder: Path) -> str:
    path = folder.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next(str(mounts[parent]) for parent in (path, *path.parents) if parent in mounts)
