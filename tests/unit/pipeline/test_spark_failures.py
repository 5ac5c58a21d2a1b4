"""Spark's traces as one line."""

import pytest

from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.spark_failures import start_failure, worker_failure

PYTHON = "/env/bin/python"


def test_a_failed_start_is_told_by_the_first_cause_that_java_names() -> None:
    said = [
        'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or start with spark, k8s, or local',
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)",
        "Caused by: java.lang.IllegalStateException: something further",
    ]
    failure = start_failure(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "x", said)
    assert str(failure) == (
        "Spark did not start at x: Master must be yarn or start with spark, k8s, or local. Check --master and what it needs"
    )


def test_a_failed_start_without_a_cause_is_told_by_javas_last_line_or_pythons_first() -> None:
    assert "Error: Could not find or load main class X" in str(
        start_failure(RuntimeError("gone"), "x", ["Error: Could not find or load main class X"])
    )
    assert "at x: gone. Check" in str(start_failure(RuntimeError("gone\nmore"), "x", []))


def test_a_master_that_takes_no_application_is_named_as_such() -> None:
    said = ["java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."]
    assert "must be a Spark master" in str(start_failure(RuntimeError(), "spark://h:1", said))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ModuleNotFoundError: No module named 'tailrace'", "has no module 'tailrace'. Install"),
        ("ModuleNotFoundError: No module named 'pyarrow.lib'", "has no module 'pyarrow.lib'. Install"),
        (f'java.io.IOException: Cannot run program "{PYTHON}": error=2', f"no Python at {PYTHON}. Set PYSPARK_PYTHON"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "of another version than the driver's"),
    ],
)
def test_workers_that_can_not_run_our_tasks_are_told_with_what_to_do(text: str, expected: str) -> None:
    failure = worker_failure(PipelineError(f"the query failed: trace\n{text}\nmore"), PYTHON)
    assert expected in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize("text", ["No module named 'somebody_elses'", 'Cannot run program "/bin/other": error=2', "a timeout"])
def test_other_failures_are_done_again(text: str) -> None:
    assert worker_failure(PipelineError(f"ModuleNotFoundError: {text}"), PYTHON) is None
