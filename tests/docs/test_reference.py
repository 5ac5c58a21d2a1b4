"""Every limit, error, setting, metric, command-line flag and endpoint is in `docs/reference/`, and nothing else is."""

import json
from collections.abc import Iterator

import msgspec
import pytest
import typer.main

from tailrace.cli.exits import Exit
from tailrace.cli.main import build_app
from tailrace.cli.settings import Configuration, ServerSection
from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tests.docs.tables import REFERENCE, named_rows

COMMANDS = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]


def test_every_limit_is_documented_with_its_default() -> None:
    documented = {name: cells[0] for name, cells in named_rows(REFERENCE / "limits.md").items()}
    assert documented == {name: f"{value:,}" for name, value in msgspec.structs.asdict(DEFAULT_LIMITS).items()}


def test_every_error_is_documented_with_what_each_surface_answers() -> None:
    documented = {name: cells[:4] for name, cells in named_rows(REFERENCE / "errors.md").items()}
    assert documented == {
        error.__name__: [str(error.http_status), str(error.kafka_code), "yes" if error.retriable else "no", error.outcome]
        for error in _subclasses(TailraceError)
    }


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: cells[0] for name, cells in named_rows(REFERENCE / "configuration.md").items()}
    assert documented == {
        f"server.{field.name}": "none" if field.default is None else f"`{json.dumps(field.default)}`"
        for field in msgspec.structs.fields(ServerSection)
    }


def test_every_section_of_the_configuration_file_is_documented() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    assert [section.name for section in msgspec.structs.fields(Configuration) if f"## `[{section.name}]`" not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_with_its_flags(command: str) -> None:
    text = (REFERENCE / "cli.md").read_text()
    section = text.partition(f"## `tailrace {command}")[2].partition("\n## ")[0]
    parameters = [name for parameter in COMMANDS[command].params for name in (parameter.opts[0], parameter.metavar) if name]
    assert [name for name in parameters if name.startswith("-") and f"`{name}" not in section] == []
    assert [name for name in parameters if name.isupper() and f"{name}`" not in section] == []


def test_every_exit_code_is_documented() -> None:
    assert set(named_rows(REFERENCE / "cli.md")) >= {str(code.value) for code in Exit}


def _subclasses(root: type[TailraceError]) -> Iterator[type[TailraceError]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)
