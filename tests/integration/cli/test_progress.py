"""Long work shows a bar to whoever sits at the terminal, and to nobody else."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import Terminal
from tests.integration.topics import consume, create
from tests.support.server import ServerProcess

CHILD = """
import sys
import time
from pathlib import Path

from tailrace.cli.main import main
from tailrace.cli.display import _DelayedBar
from tailrace.cli.server_api import ServerApi

seen = Path(sys.argv.pop(1))
advance = _DelayedBar.advance


def slow(ask):
    def call(*args, **more):
        time.sleep(0.25)
        return ask(*args, **more)

    return call


def advance_and_wait(bar, reached):
    advance(bar, reached)
    while bar._made is not None and not seen.exists():
        time.sleep(0.02)


_DelayedBar.advance = advance_and_wait
for name in ("post", "repeat", "sql"):
    setattr(ServerApi, name, slow(getattr(ServerApi, name)))
main()
"""
"""The command with a server that seems to take its time. When there is a bar, it waits until somebody has seen it."""


class Slow(NamedTuple):
    terminal: Terminal
    seen: Path

    def bar(self, noun: str) -> str:
        """The screen with the bar; the work goes on then."""
        screen = self.terminal.wait_for(f"{noun} ━")
        self.seen.touch()
        return screen


@pytest.fixture
def slowly(tailrace: Commands, tmp_path: Path) -> Iterator[Callable[..., Slow]]:
    """A command at a terminal, by the shell."""
    child, seen = tmp_path / "child.py", tmp_path / "seen"
    child.write_text(CHILD)
    opened: list[Terminal] = []

    def run(words: str) -> Slow:
        line = f"{sys.executable} {child} {seen} {words}; echo ended with $?"
        opened.append(Terminal(["/bin/sh", "-c", line], tailrace.environment))
        return Slow(opened[-1], seen)

    yield run
    for terminal in opened:
        terminal.__exit__()


def test_publishing_a_file_shows_how_far_it_is(slowly: Callable[..., Slow], server: ServerProcess, tmp_path: Path) -> None:
    create(server.url, "p.lines")
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(8_000)))
    slow = slowly(f"publish p.lines --batch 1000 < {file}")
    screen = slow.bar("messages")
    assert "%" in screen
    assert slow.terminal.wait_for("ended with 0") == "8,000 messages stored in p.lines\nended with 0"
    assert consume(server.url, "p.lines") == list(range(8_000))


def test_consuming_to_a_file_shows_how_far_it_is(
    slowly: Callable[..., Slow], tailrace: Commands, server: ServerProcess, tmp_path: Path
) -> None:
    create(server.url, "p.read")
    lines = "".join(f"{number}\n" for number in range(8_000))
    tailrace.done("publish", "p.read", stdin=lines)
    file = tmp_path / "read"
    slow = slowly(f"consume p.read --format value > {file}")
    screen = slow.bar("messages")
    assert "%" in screen
    assert slow.terminal.wait_for("ended with 0") == "ended with 0"
    assert file.read_text() == lines


def test_a_script_shows_how_far_it_is_below_its_output(slowly: Callable[..., Slow], tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("".join(f"SELECT {number} AS number;\n" for number in range(8)))
    slow = slowly(f"sql -f {file}")
    screen = slow.bar("statements")
    assert "%" in screen.splitlines()[-1]
    screen = slow.terminal.wait_for("ended with 0")
    tables = [text for number in range(8) for text in ("number", "──────", str(number), "1 row")]
    assert [line.strip() for line in screen.splitlines()] == [*tables, "ended with 0"]


def test_there_is_no_bar_where_nobody_sits(tailrace: Commands, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT 1 AS number;\n" * 3)
    ended = tailrace.done("sql", "-f", str(file))
    assert (ended.out, ended.err) == ('{"number":1}\n' * 3, "")
