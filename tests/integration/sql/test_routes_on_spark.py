"""Routes in a real Spark: the text that a route keeps means there what it means to us.

Runs where `make compat` has put Spark.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import RouteSql
from tailrace.sql.routes.check import CheckedRoute
from tailrace.sql.routes.compile import compile_for_spark
from tailrace.wire.routing import partition_key
from tests.compat.kinds import SPARK_PYTHON
from tests.support.route_cases import TABLE, Writer, checked, encoded, hard_rows, random_row
from tests.support.route_oracle import Images, expected

CHILD = Path(__file__).with_name("spark_child.py")
CONDITIONS = 30
KEYS = ("id", "small", "name", "flag", "d", "ts", "u", "amount", "rate", "CAST(name AS INTEGER)", "lower(name)", "id % 10")

pytestmark = pytest.mark.skipif(
    not SPARK_PYTHON.exists() or shutil.which("java") is None, reason="Spark is not there; make compat installs it"
)


def in_spark(routes: Sequence[RouteSql], images: Sequence[Images]) -> list[list[list[list[object]]]]:
    events = [
        '{"old":%s,"new":%s}' % tuple((encoded(image) or b"null").decode() for image in pair)  # noqa: UP031  bytes of JSON
        for pair in images
    ]
    texts = [{"condition": route.condition, "failure": route.failure, "key": route.key} for route in routes]
    asked = {"row": routes[0].row, "events": events, "routes": texts}
    done = subprocess.run([str(SPARK_PYTHON), str(CHILD)], input=json.dumps(asked), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[list[list[list[object]]]] = json.loads(done.stdout)
    return answers


def random_routes(count: int) -> list[tuple[str, CheckedRoute]]:
    found: list[tuple[str, CheckedRoute]] = []
    seed = 0
    while len(found) < count:
        seed += 1
        text = Writer(Random(seed), ("OLD.", "NEW.", "")).condition()
        try:
            found.append((text, checked(text, operations=("update",))))
        except InvalidRequestError:
            continue
    return found


def test_spark_answers_what_the_route_means_with_and_without_ansi_mode() -> None:
    routes = random_routes(CONDITIONS) + [(key, checked("flag", [key], ("update",))) for key in KEYS]
    random = Random(1)
    images = [Images(random_row(random), row) for row in hard_rows()]
    compiled = [compile_for_spark(route, TABLE, DEFAULT_LIMITS) for _, route in routes]
    for mode in in_spark(compiled, images):
        for (text, route), answers in zip(routes, mode, strict=True):
            for pair, (matches, failed, key) in zip(images, answers, strict=True):
                meant = expected(route, pair)
                assert (matches, failed) == (meant.matches, meant.failed), (text, pair)
                if meant.matches and route.keys:
                    assert key == partition_key(meant.keys).decode(), (text, pair)
