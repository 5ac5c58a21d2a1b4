"""Long work shows a bar to whoever sits at the terminal, and to nobody else."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import Terminal
from tests.integration.topics import consume, create
from tests.support.server import ServerProcess


@pytest.fixture
def slowly(tailrace: Commands, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """A command at a terminal, by the shell, with a server that seems to take its time."""
    child = tmp_path / "child.py"
    child.write_text(
        "import time\n"
        "from tailrace.cli.main import main\n"
        "from tailrace.cli.server_api import ServerApi\n"
        "def slow(ask):\n"
        "    def call(*args, **more):\n"
        "        time.sleep(0.25)\n"
        "        return ask(*args, **more)\n"
        "    return call\n"
        "for name in ('post', 'repeat', 'sql'):\n"
        "    setattr(ServerApi, name, slow(getattr(ServerApi, name)))\n"
        "main()\n"
    )
    opened: list[Terminal] = []

    def run(words: str) -> Terminal:
        line = f"{sys.executable} {child} {words}; echo ended with $?"
        opened.append(Terminal(["/bin/sh", "-c", line], tailrace.environment))
        return opened[-1]

    yield run
    for terminal in opened:
        terminal.__exit__()


def test_publishing_a_file_shows_how_far_it_is(slowly: Callable[..., Terminal], server: ServerProcess, tmp_path: Path) -> None:
    create(server.url, "p.lines")
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(8_000)))
    terminal = slowly(f"publish p.lines --batch 1000 < {file}")
    screen = terminal.wait_for("messages ━")
    assert "%" in screen
    assert terminal.wait_for("ended with 0") == "8,000 messages stored in p.lines\nended with 0"
    assert consume(server.url, "p.lines") == list(range(8_000))


def test_consuming_to_a_file_shows_how_far_it_is(
    slowly: Callable[..., Terminal], tailrace: Commands, server: ServerProcess, tmp_path: Path
) -> None:
    create(server.url, "p.read")
    lines = "".join(f"{number}\n" for number in range(8_000))
    tailrace.done("publish", "p.read", stdin=lines)
    file = tmp_path / "read"
    terminal = slowly(f"consume p.read --format value > {file}")
    screen = terminal.wait_for("messages ━")
    assert "%" in screen
    assert terminal.wait_for("ended with 0") == "ended with 0"
    assert file.read_text() == lines


def test_a_script_shows_how_far_it_is_below_its_output(slowly: Callable[..., Terminal], tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("".join(f"SELECT {number} AS number;\n" for number in range(8)))
    terminal = slowly(f"sql -f {file}")
    screen = terminal.wait_for("statements ━")
    assert "%" in screen.splitlines()[-1]
    screen = terminal.wait_for("ended with 0")
    tables = [text for number in range(8) for text in ("number", "──────", str(number), "1 row")]
    assert [line.strip() for line in screen.splitlines()] == [*tables, "ended with 0"]


def test_there_is_no_bar_where_nobody_sits(tailrace: Commands, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT 1 AS number;\n" * 3)
    ended = tailrace.done("sql", "-f", str(file))
    assert (ended.out, ended.err) == ('{"number":1}\n' * 3, "")
