"""Disks that fail: calls of another process that get `EIO` instead of what they asked for."""

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("failing_disk.c")


class Fault(NamedTuple):
    """How to start a process so that it meets the fault."""

    wrapper: Sequence[str]
    environment: Mapping[str, str]


def failing_call(call: str, below: str, at: int) -> Fault:
    """The `at`-th such call on a file below the folder named `below` fails, whichever thread makes it."""
    return Fault((), {"LD_PRELOAD": str(_shim()), "FAIL_CALL": call, "FAIL_PATH": f"/{below}/", "FAIL_AT": str(at)})


def traced_call(call: str, at: int) -> Fault:
    """Make the kernel itself fail the `at`-th such call of any one thread."""
    options = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={at}"]
    return Fault(("strace", *options), {})


def why_no_shim() -> str | None:
    return None if shutil.which("cc") else "the failing disk is a C file, and there is no cc to compile it"


def why_no_tracing() -> str | None:
    if shutil.which("strace") is None:
        return "there is no strace"
    probe = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True)
    return None if probe.returncode == 0 else "strace may not trace here"


@functools.cache
def _shim() -> Path:
    library = Path(tempfile.mkdtemp(prefix="tailrace-faults-")) / "failing_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library
