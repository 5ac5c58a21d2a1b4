"""What Spark says when it can't start or can't run our tasks, as one line that says what to do.

Spark tells of these things in traces of Java and Python that a person has to know it well to read.
"""

import re
from pathlib import Path

from py4j.protocol import Py4JJavaError

from tailrace.pipeline.errors import SparkError

_CAUSE = re.compile(r'^(?:Caused by: |: |Exception in thread "[^"]*" )?(?:[\w$]+\.)+\w*(?:Exception|Error): (?P<message>.+)$')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_GIVEN_UP = "stopped SparkContext"
"""What is left to see of a master that never answered: Spark has stopped itself, and trips over that."""
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_OURS = ("tailrace", "pyarrow", "msgspec", "numba", "numpy")


def start_failure(error: BaseException, master: str, said: list[str]) -> SparkError:
    """Describe why Spark did not start, from what was raised and what Java has written to stderr."""
    raised = str(error).splitlines() if isinstance(error, Py4JJavaError) else []
    causes = [found["message"] for line in [*said, *raised] if (found := _CAUSE.match(line))]
    why = causes[0] if causes else (said[-1] if said else str(error).partition("\n")[0])
    if _GIVEN_UP in why:
        why = "what answers there took no application for a minute; it must be a Spark master of PySpark's version"
    return SparkError(f"Spark did not start at {master}: {why.strip().rstrip('.')}. Check --master and what it needs")


def worker_failure(error: BaseException, python: str) -> SparkError | None:
    """Describe why no task of ours can run on Spark's workers, or return `None` where that is not what happened."""
    text = str(error)
    module = _NO_MODULE.search(text)
    if module is not None and module["module"].partition(".")[0] in _OURS:
        return SparkError(
            f"{python}, the Python of Spark's workers, has no module {module['module']!r}. Install the same version of"
            " tailrace[spark] for it on every machine that runs tasks, or set PYSPARK_PYTHON to a Python that has it there"
        )
    program = _NO_PROGRAM.search(text)
    if program is not None and Path(program["program"]).name == Path(python).name:
        return SparkError(
            f"Spark's workers have no Python at {program['program']}. Set PYSPARK_PYTHON to one with tailrace[spark] that is"
            " there on every machine that runs tasks"
        )
    if _OTHER_PYTHON in text:
        return SparkError(
            f"{python}, the Python of Spark's workers, is of another version than the driver's. Set PYSPARK_PYTHON to one of"
            " the same version with tailrace[spark], on every machine that runs tasks"
        )
    return None
