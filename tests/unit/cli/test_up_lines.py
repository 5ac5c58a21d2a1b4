"""The lines that `tailrace up` prints."""

import pytest

from tailrace.cli.up import _say


def test_each_line_says_where_it_comes_from_and_java_does_not_alarm_anybody(capsys: pytest.CaptureFixture[str]) -> None:
    _say("pipeline", "starting Spark at local[*]")
    _say("pipeline", "WARNING: Using incubator modules: jdk.incubator.vector")
    _say("server", "WARNING: something else")
    assert capsys.readouterr().out == "pipeline | starting Spark at local[*]\n  server | WARNING: something else\n"
