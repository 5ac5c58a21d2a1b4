"""The lines that `tailrace up` prints."""

import pytest

from tailrace.cli.up import _print_line


def test_each_line_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    _print_line("pipeline", "starting Spark at local[*]")
    _print_line("server", "WARNING: something else")
    assert capsys.readouterr().out == "pipeline | starting Spark at local[*]\n  server | WARNING: something else\n"
