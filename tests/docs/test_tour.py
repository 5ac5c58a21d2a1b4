"""The tour of the README, pasted into a shell line by line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.tables import ROOT
from tests.support.ports import free_port

BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_PORT = "8080"


@pytest.mark.timeout(180)
def test_the_tour_works_when_pasted(tmp_path: Path) -> None:
    folder, port = tmp_path / "tour", str(free_port())
    tour = "\n".join(BLOCK.findall((ROOT / "README.md").read_text()))
    tour = tour.replace("/tmp/tailrace-tour", str(folder)).replace(DEFAULT_PORT, port)
    tour = tour.replace(".venv/bin/tailrace up", f".venv/bin/tailrace up --http 127.0.0.1:{port} --kafka 127.0.0.1:0")
    tour = tour.replace(".venv/bin/tailrace", ".venv/bin/python -m tailrace").replace(".venv/bin/python", sys.executable)
    leaving_nothing_behind = f"trap 'kill $UP 2>/dev/null || true' EXIT\nexport TAILRACE_SERVER=http://127.0.0.1:{port}\n"

    ended = subprocess.run(
        ["bash", "-c", leaving_nothing_behind + tour],
        capture_output=True,
        text=True,
        timeout=170,
        cwd=ROOT,
    )

    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "urn:tailrace:error" not in said
    assert "server | Tailrace" in said
    assert '"old":{"id":1,"channel_id":42,"is_visible":true,"body":"hello"}' in said.replace('\\"', '"'), said
    assert '"value":{"id":1,"channel_id":42,"is_visible":true,"body":"hello"}' in said, said
    assert re.search(r"^\d 0 \{.*'body': 'hello'.*\}$", said, re.MULTILINE), said
    assert "elsewhere" not in said.partition('"topic_name"')[2]
    assert "router" in said
    assert "all good" in said
