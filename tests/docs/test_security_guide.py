"""The guide to security, pasted into a shell."""

from pathlib import Path

from tests.docs.shell import paste
from tests.docs.tables import ROOT

GUIDE = ROOT / "docs" / "guides" / "security.md"


def test_the_commands_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    said = paste(GUIDE, tmp_path, "SERVER", seconds=180)
    assert "and the administrator root. The password of root is in root.password." in said
    assert "as it should be" in said
    assert "tlr_" in said, "no token was shown"
    assert "A client with these files is the user billing" in said
    assert (tmp_path / "root.password").stat().st_mode & 0o077 == 0
