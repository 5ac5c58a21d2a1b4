"""What pages tell people to paste into a shell works when it is pasted."""

import re
from pathlib import Path

import pytest

from tests.docs.shell import paste
from tests.docs.tables import ROOT


@pytest.mark.timeout(420)
def test_the_tour_works_when_pasted(tmp_path: Path) -> None:
    said = paste(ROOT / "README.md", tmp_path, "UP", {"/tmp/tailrace-tour": "tour"}, seconds=400)
    assert "urn:tailrace:error" not in said
    assert "server | Tailrace" in said
    assert '"old":{"id":1,"channel_id":42,"is_visible":true,"body":"hello"}' in said.replace('\\"', '"'), said
    assert '"value":{"id":1,"channel_id":42,"is_visible":true,"body":"hello"}' in said, said
    assert re.search(r"^\d 0 \{.*'body': 'hello'.*\}$", said, re.MULTILINE), said
    assert "elsewhere" not in said.partition('"topic_name"')[2]
    assert "router" in said
    assert "all good" in said


@pytest.mark.timeout(300)
def test_a_back_up_is_made_and_restored_as_the_guide_says(tmp_path: Path) -> None:
    said = paste(ROOT / "docs" / "guides" / "operations.md", tmp_path, "SERVER", seconds=280)
    assert "all good" in said
    assert "9.5" in said.partition("all good")[2], said
    assert (tmp_path / "broken").exists()
