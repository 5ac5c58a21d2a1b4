"""The flags of `tailrace serve`: read without Typer where they are plain, and by Typer to the same values."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli import serve as serve_module
from tailrace.cli.commands import build_app
from tailrace.cli.server_process import ServeFlags, read_plain_flags

PLAIN = [
    "serve",
    "serve --data ./d",
    "serve --data=/var/lib/tailrace --http 127.0.0.1:0 --kafka=127.0.0.1:0",
    "serve --config tailrace.toml --allow-remote --advertise kafka.example:9092",
    "serve --allow-remote --durability relaxed --data d --accept-loss-after 4711",
    "serve --durability=fsync --accept-loss-after=0",
    "serve --data a=b",
    "serve --data d --allow-remote --no-authentication --no-tls",
    "serve --no-tls --log-format json",
    "serve --log-format=text",
]
OTHERS = [
    "",
    "topics list",
    "--version",
    "serve --help",
    "serve -h",
    "serve --data",
    "serve --data=",
    "serve --data --http",
    "serve --data a --data b",
    "serve --durability never",
    "serve --accept-loss-after -1",
    "serve --accept-loss-after many",
    "serve --accept-loss-after \u0664",
    "serve --allow-remote=yes",
    "serve --no-tls --no-tls",
    "serve --no-authentication=1",
    "serve --log-format xml",
    "serve --unknown 1",
    "serve -- --data d",
    "serve d",
]


def read_by_typer(line: str, monkeypatch: pytest.MonkeyPatch) -> ServeFlags:
    found: list[ServeFlags] = []
    monkeypatch.setattr(serve_module, "run_server", found.append)
    assert CliRunner().invoke(build_app(), line.split()).exit_code == 0
    (flags,) = found
    return flags


@pytest.mark.parametrize("line", PLAIN)
def test_plain_flags_are_what_typer_reads(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_plain_flags(line.split())
    assert plain is not None
    assert resolved(plain) == resolved(read_by_typer(line, monkeypatch))


def resolved(flags: ServeFlags) -> dict[str, object]:
    """Typer writes `./d` as `d`; both name one folder."""
    return {name: Path(value) if name in ("data", "config") and value else value for name, value in flags._asdict().items()}


@pytest.mark.parametrize("line", OTHERS)
def test_everything_else_is_left_to_typer(line: str) -> None:
    assert read_plain_flags(line.split()) is None


def test_reading_plain_flags_loads_no_typer() -> None:
    code = "import sys, tailrace.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tailrace.cli.server_process" in loaded
    assert not {"typer", "click", "pydantic", "tailrace.server"} & set(loaded)
