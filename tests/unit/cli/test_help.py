"""`--help`: quick, and with something to copy."""

import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from tailrace.cli.commands import build_app

COMMANDS = {
    " ".join((name, *below)): command
    for name, top in typer.main.get_command(build_app()).commands.items()  # type: ignore[attr-defined]
    for below, command in [
        *(((one,), each) for one, each in getattr(top, "commands", {}).items()),
        *([((), top)] if getattr(top, "invoke_without_command", True) else []),
    ]
}
HEAVY = (
    "aiohttp",
    "apsw",
    "duckdb",
    "httpx",
    "litestar",
    "msgspec",
    "numpy",
    "prompt_toolkit",
    "pyarrow",
    "pyspark",
    "pgparse",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_of_itself(command: str) -> None:
    help_text = COMMANDS[command].help or ""
    before, heading, examples = help_text.partition("[bold]Example")
    assert before.strip()
    assert heading
    assert f"tailrace {command}" in examples


@pytest.mark.parametrize("command", ["", "topics", "groups", "routes", *COMMANDS])
def test_help_shows_flags_as_flags_and_every_line_as_it_was_written(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(build_app(), [*command.split(), "--help"]).output
    assert " --help " in shown
    assert [word for word in ("<bool>", "<int", "list[") if word in shown] == []
    written = getattr(COMMANDS.get(command), "help", "").partition("\n\n")[2]
    seen = [line.strip() for line in shown.splitlines()]
    for line in written.splitlines():
        assert re.sub(r"\[/?(bold)?\]", "", line).replace("\\[", "[").strip() in seen


def test_help_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys; from tailrace.cli.commands import build_app; build_app(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tailrace.cli.topics" in loaded
    assert [name for name in HEAVY if name in loaded] == []
