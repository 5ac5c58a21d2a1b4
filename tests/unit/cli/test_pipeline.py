"""The flags of `tailrace pipeline`, and the lines that it prints while it routes."""

import pytest
from typer.testing import CliRunner

from tailrace.cli.commands import build_app
from tailrace.cli.pipeline import RoutingProgress
from tailrace.model.pipeline import PipelineReport


def test_one_change_of_one_route_is_printed_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    RoutingProgress()(PipelineReport(batch=3, rows=1, routes=1, batch_seconds=1.25, rows_per_second=0.8))
    assert capsys.readouterr().out == ("batch 3: 1 change routed so far; the last batch took 1.25 s for 1 route (1 change/s)\n")


def test_real_time_has_no_batches_to_speak_of(capsys: pytest.CaptureFixture[str]) -> None:
    report = PipelineReport(mode="real-time", rows=1_200, routes=1, batch_seconds=0.2, rows_per_second=2_400.0, dead_letters=7)
    RoutingProgress()(report)
    assert capsys.readouterr().out == (
        "real time: 1,200 changes routed so far, 7 to dead letters; now 2,400 changes/s for 1 route\n"
    )


def test_many_changes_of_many_routes_are_printed_in_the_plural(capsys: pytest.CaptureFixture[str]) -> None:
    RoutingProgress()(PipelineReport(batch=4, rows=1_200, routes=2, batch_seconds=0.5, rows_per_second=2_400.0, dead_letters=7))
    assert capsys.readouterr().out == (
        "batch 4: 1,200 changes routed so far, 7 to dead letters; the last batch took 0.50 s for 2 routes (2,400 changes/s)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--once", "package"], "--once can't be used with tailrace pipeline package; leave it out"),
        (["--conf", "memory=2g"], "--conf memory=2g is not a setting of Spark, such as spark.executor.memory=2g"),
        (["--conf", "spark.executor.memory"], "--conf spark.executor.memory is not a setting of Spark"),
    ],
)
def test_flags_that_would_be_ignored_are_rejected(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(build_app(), ["pipeline", *arguments])
    assert message in str(result.exception)
