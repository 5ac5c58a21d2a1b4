"""The disk of the server's folder.

If the machine allows mounts, it is a small ext4 file system in a file, whose power can be cut and which can be filled up.
Otherwise it is a plain folder, and faults of the disk say why they are left out.
"""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.powercut import cut_power, make_image, why_no_mounts

IMAGE_BYTES = 192 << 20
_COPIES = 20
_LEFT_BYTES = 64 << 10


class Disk:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.mount = home / "disk"
        self.mount.mkdir()
        self.why_plain = why_no_mounts()
        self._images = 0
        self._image = home / "disk-0.img"
        if self.why_plain is None:
            make_image(self._image, IMAGE_BYTES)
            self._attach()

    @property
    def folder(self) -> Path:
        """Where the server keeps its data."""
        return self.mount / "data"

    def cut_power(self) -> None:
        """Copy what the disk holds without its caches, to continue with that. Nobody may write to it meanwhile."""
        self._images += 1
        self._next = self._home / f"disk-{self._images}.img"
        for _ in range(_COPIES):
            cut_power(self._image, self._next)
            # The kernel may have written to the image during the copy, which then mixes two states.
            if _same(self._image, self._next):
                return
        raise RuntimeError(f"{self._image} does not come to rest, so there is no moment of it to copy")

    def restore_power(self) -> None:
        """Mount the copy of `cut_power`, once nobody uses the old disk any more."""
        self._detach()
        self._image.unlink()
        self._image = self._next
        self._attach()

    def fill(self) -> None:
        free = os.statvfs(self.mount).f_bavail * os.statvfs(self.mount).f_frsize
        with (self.mount / "filler").open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(free - _LEFT_BYTES, 1))

    def free_space(self) -> None:
        (self.mount / "filler").unlink(missing_ok=True)

    def used_bytes(self) -> int:
        """Return the size of the server's folder."""
        total = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    total += (Path(folder) / name).stat().st_blocks * 512
        return total

    def close(self, keep: Path | None = None) -> None:
        """Remove the disk, after copying the server's folder to `keep`."""
        if keep is not None and self.folder.exists():
            shutil.copytree(self.folder, keep, dirs_exist_ok=True)
        if self.why_plain is None:
            self._detach()
            self._image.unlink()
            self.mount.rmdir()
        else:
            shutil.rmtree(self.mount)

    def _attach(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mount))

    def _detach(self) -> None:
        try:
            _run("umount", str(self.mount))
        except subprocess.CalledProcessError:
            _run("umount", "--lazy", str(self.mount))


def _same(one: Path, other: Path) -> bool:
    return subprocess.run(["cmp", "--quiet", str(one), str(other)]).returncode == 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
