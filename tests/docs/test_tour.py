"""The tour of the README, pasted into a shell line by line."""

import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.docs.tables import ROOT

BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_PORT = "8080"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def test_the_tour_works_when_pasted(tmp_path: Path) -> None:
    folder, port = tmp_path / "tour", free_port()
    tour = "\n".join(BLOCK.findall((ROOT / "README.md").read_text()))
    tour = tour.replace("/tmp/tailrace-tour", str(folder)).replace(DEFAULT_PORT, port)
    tour = tour.replace(".venv/bin/tailrace serve", f".venv/bin/tailrace serve --http 127.0.0.1:{port} --kafka 127.0.0.1:0")
    tour = tour.replace(".venv/bin/tailrace", f"{sys.executable} -m tailrace")
    leaving_nothing_behind = "trap 'kill -9 $SERVER 2>/dev/null || true' EXIT\n"

    ended = subprocess.run(
        ["bash", "-c", leaving_nothing_behind + tour],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )

    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "urn:tailrace:error" not in said
    assert said.count(" is ready at ") == 2
    assert '"value":{"order": 1, "paid": true}' in said
    assert '"value":{"order": 2, "paid": true}' in said
    assert 'tailrace_messages_in_total{topic="shop.payments"} 1.0' in said
    assert "append  shop.orders[2]  offsets 0 to 0" in said
    assert "all good" in said
