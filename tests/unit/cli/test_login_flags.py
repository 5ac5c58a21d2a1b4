"""Every command that uses a server takes the flags to log in there, and no secret is a flag."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tailrace.cli.command_line import DEFAULT_SERVER, LOGIN_OPTIONS, CommandGroup, ServerLogin, ServerOption
from tailrace.cli.commands import build_app

FLAGS = {"--user", "--password-file", "--token-file", "--ca-file"}
COMMANDS = {
    " ".join((name, *sub)): command
    for name, top in typer.main.get_command(build_app()).commands.items()  # type: ignore[attr-defined]
    for sub, command in [((), top), *(((each,), one) for each, one in getattr(top, "commands", {}).items())]
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_all_flags_of_a_server_or_none(command: str) -> None:
    flags = {flag for parameter in COMMANDS[command].params for flag in parameter.opts}
    if "--server" in flags:
        assert flags >= FLAGS
    assert not {"--password", "--token", "--secret"} & flags


def test_most_commands_use_a_server() -> None:
    using = [name for name, command in COMMANDS.items() if any("--server" in one.opts for one in command.params)]
    assert {"sql", "pipeline", "capture", "shadow run", "topics list", "groups reset", "copy", "snapshot"} <= set(using)
    assert set(LOGIN_OPTIONS) == {flag[2:].replace("-", "_") for flag in FLAGS}


def test_a_command_gets_a_server_with_files_by_their_absolute_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ServerLogin] = []

    def command(
        name: Annotated[str, typer.Argument()], server: ServerOption = DEFAULT_SERVER, more: Annotated[int, typer.Option()] = 1
    ) -> None:
        """Do something."""
        assert (name, more) == ("x", 2)
        found.append(server)

    def other() -> None:
        """Do nothing."""

    app = CommandGroup("All.")
    app.add("command", command)
    app.add("other", other)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_SERVER", "http://from.environment")
    words = ["command", "x", "--more", "2"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert found[-1].url == "http://from.environment"
    assert found[-1].source.settings() == {}
    login = ["--server", "http://a", "--user", "alice", "--password-file", "p", "--token-file", "/t", "--ca-file", "c"]
    assert CliRunner().invoke(app, [*words, *login]).exit_code == 0
    source = found[-1].source
    assert (found[-1].url, source.user, source.token_file) == ("http://a", "alice", "/t")
    assert (source.password_file, source.ca_file) == (str(tmp_path / "p"), str(tmp_path / "c"))
