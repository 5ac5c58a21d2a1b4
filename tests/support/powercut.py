"""A disk that loses power: an ext4 file system in a file, copied while its owner is frozen.

What the owner has not synced is still in the page cache of the mounted file system and not in the file, so the copy holds
exactly what a power cut would leave. Needs the right to mount.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE_BYTES = 64 << 20
PROBE_BYTES = 1 << 20


@functools.cache
def why_no_mounts() -> str | None:
    """Why there can be no power cuts on this machine, if so: found out by trying."""
    if os.geteuid() != 0:
        return "power cuts need root, to mount an image"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"power cuts need {tool}"
    with tempfile.TemporaryDirectory(prefix="tailrace-mount-") as home:
        try:
            with mounted(make_image(Path(home) / "probe.img", PROBE_BYTES), Path(home) / "probe"):
                return None
        except subprocess.CalledProcessError as error:
            return f"this machine does not let us mount: {error.stderr.decode(errors='replace').strip()}"


def make_image(path: Path, size: int = IMAGE_BYTES) -> Path:
    with path.open("wb") as image:
        image.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True, capture_output=True)
    return path


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(at)], check=True, capture_output=True)
    try:
        yield at
    finally:
        _unmount(at)


@contextmanager
def small_disk(at: Path, size: int) -> Iterator[Path]:
    """A file system in memory that is soon full."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], check=True, capture_output=True)
    try:
        yield at
    finally:
        _unmount(at)


def cut_power(image: Path, copy: Path) -> Path:
    """What the disk holds now. Nothing is synced first; whoever writes to it must stand still."""
    subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True, capture_output=True)
    return copy


def _unmount(at: Path) -> None:
    """Whoever used the disk must have let go of it; if not, it goes all the same, so that no later test meets it."""
    if subprocess.run(["umount", str(at)], capture_output=True).returncode != 0:
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)
        raise AssertionError(f"{at} is still in use")
