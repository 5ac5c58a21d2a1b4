"""A shim around the server's system calls, controlled while it runs: failed and slow syncs, and a wrong wall clock."""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")
_NUMBER = struct.Struct("q")
_FAIL_SYNCS, _SYNC_MICROSECONDS, _CLOCK_SECONDS = range(3)
_BYTES = 4096


class Shim:
    """A compiled library in the run's folder, and the file that controls it."""

    def __init__(self, home: Path) -> None:
        self.why_not = None if shutil.which("cc") else "the shim is a C file, and there is no cc to compile it"
        self._knobs = home / "knobs"
        self._knobs.write_bytes(bytes(_BYTES))
        with self._knobs.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self.environment: dict[str, str] = {}
        if self.why_not is None:
            self._library = home / "shim.so"
            command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
            self.environment = {"LD_PRELOAD": str(self._library), "CHAOS_KNOBS": str(self._knobs)}

    def fail_syncs(self, count: int) -> None:
        self._set(_FAIL_SYNCS, count)

    def slow_syncs(self, seconds: float) -> None:
        self._set(_SYNC_MICROSECONDS, int(seconds * 1e6))

    def move_clock(self, seconds: int) -> None:
        self._set(_CLOCK_SECONDS, seconds)

    def close(self) -> None:
        self._map.close()
        self._knobs.unlink()
        if self.environment:
            self._library.unlink()

    def _set(self, knob: int, value: int) -> None:
        _NUMBER.pack_into(self._map, knob * _NUMBER.size, value)
