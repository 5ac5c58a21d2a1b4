"""What was typed is there the next time, and does not grow for ever."""

import stat
from pathlib import Path

import pytest

from tailrace.cli.sql.prompt import history_file, open_history


def entries(file: Path) -> list[str]:
    """Newest first."""
    return list(open_history(file).load_history_strings())


def test_entries_are_there_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "state" / "sql_history"
    open_history(file).store_string("SELECT 1;")
    open_history(file).store_string("SELECT\n2;")
    assert entries(file) == ["SELECT\n2;", "SELECT 1;"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER a PASSWORD 'hunter2';",
        "alter user a\npassword 'hunter2'",
        "ALTER /* x */ USER a PASWORD 'hunter2';",
        "CRATE USER a PASSWORD 'hunter2'",
        "SELECT 1; CREATE USER IF NOT EXISTS a 'hunter2';",
    ],
)
def test_what_may_have_a_password_is_not_kept(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sql_history"
    history = open_history(file)
    history.append_string("SELECT 1;")
    history.append_string(text)
    history.append_string("SELECT 2;")
    assert entries(file) == ["SELECT 2;", "SELECT 1;"]
    assert "hunter2" not in file.read_text()


def test_a_file_that_has_grown_keeps_its_newer_half(tmp_path: Path) -> None:
    file = tmp_path / "sql_history"
    history = open_history(file)
    for number in range(2_500):
        history.store_string(f"{number} {'x' * 1_000}")
    kept = [int(entry.split()[0]) for entry in entries(file)]
    assert kept == list(range(2_499, 2_499 - len(kept), -1))
    assert 900 < len(kept) < 1_100
    assert file.stat().st_size < 1_100_000
    assert [each.name for each in tmp_path.iterdir()] == ["sql_history"]


def test_without_a_place_for_the_file_the_prompt_works_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    open_history(tmp_path / "file" / "sql_history").store_string("SELECT 1;")
    assert "the history can't be saved" in capsys.readouterr().err


def test_the_file_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "tailrace" / "sql_history"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert history_file() == tmp_path / ".local" / "state" / "tailrace" / "sql_history"
