"""The shell blocks of a page, pasted into a shell one after the other."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.ports import free_port

_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?<![\w/-])(?:\.venv/bin/)?tailrace (?=[a-z])")
_DEFAULT_PORT = "8080"

NOWHERE: Mapping[str, str] = {}


def paste(page: Path, folder: Path, background: str, places: Mapping[str, str] = NOWHERE, *, seconds: float) -> str:
    """What the blocks print when they run in `folder`, with a port of their own and other `places` for some paths.

    `background` is their variable for the process that they start; it does not outlive them.
    """
    port = str(free_port())
    script = "\n".join(_BLOCK.findall(page.read_text())).replace(_DEFAULT_PORT, port)
    for written, actual in places.items():
        script = script.replace(written, actual)
    script = re.sub(r"tailrace (up|serve) ", rf"tailrace \1 --http 127.0.0.1:{port} --kafka 127.0.0.1:0 ", script)
    script = _COMMAND.sub(f"{sys.executable} -m tailrace ", script.replace(".venv/bin/python", sys.executable))
    ahead = f"set -e\ntrap 'kill ${background} 2>/dev/null || true' EXIT\nexport TAILRACE_SERVER=http://127.0.0.1:{port}\n"
    ended = subprocess.run(
        ["bash", "-c", ahead + script], capture_output=True, text=True, timeout=seconds, cwd=folder, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said
