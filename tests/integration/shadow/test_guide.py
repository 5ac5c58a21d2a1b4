"""The commands of the guide to shadows, pasted one block after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shadow_pair import ShadowPair

pytestmark = pytest.mark.long

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "shadow.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KAFKA = "kafka-1:9092"


def state(pair: ShadowPair, name: str) -> str | None:
    rows = pair.api.sql(f"SELECT state FROM system.shadows WHERE name = '{name}'")
    return rows[0][0] if rows else None


def test_the_commands_of_the_guide_do_what_it_says(pair: ShadowPair) -> None:
    pair.here.create("app.orders", 2)
    pair.here.numbers("app.orders", 0, 50)
    pair.here.read("billing", "app.orders", 20)
    pair.there.create("orders.eu")
    pair.there.numbers("orders.eu", 0, 30)
    said = ""
    for block in BLOCK.findall(GUIDE.read_text()):
        script = re.sub(
            r"\btailrace (?=sql|shadow)", f"{sys.executable} -m tailrace ", block.replace(KAFKA, pair.kafka.address)
        )
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "TAILRACE_SERVER": pair.server.url},
        )
        assert done.returncode == 0, f"{block}: {done.stdout} {done.stderr}"
        said += done.stdout
        for name in ("prod", "old"):
            if f"CREATE SHADOW {name}" in block and "DRY RUN" not in block:
                eventually(lambda name=name: state(pair, name) == "live", f"{name} is live", 60)  # type: ignore[misc]
    for expected in (
        "topics can be created in the target",
        "equal",
        "nothing was changed",
        "prod: cut over",
        "prod: rolled back",
    ):
        assert expected in said
    assert state(pair, "prod") is None
    assert pair.there.values("app.orders") == pair.here.values("app.orders")
    assert pair.here.values("orders.eu") == pair.there.values("orders.eu")
    assert pair.there.read("billing", "app.orders", 30) == [b"%d" % number for number in range(20, 50)]
