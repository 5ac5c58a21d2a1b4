"""Tables, routes and a pipeline on a standalone cluster, for the short and the long form of its tests."""

from pathlib import Path

from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Change, Route

TABLE = "chat.messages"
TOPICS = ("all", "odd", "odd.dead_letters")
MEMORY = "spark.executor.memory=512m"
ROUTED_SECONDS = 200.0
_OUR_LINES = ("starting Spark", "the pipeline", "batch ", "snapshots: ", "stopped")


def create_routed_table(tables: RoutedTables) -> None:
    """A table with a route to three partitions and one whose condition divides by zero."""
    tables.create(TABLE, user_id="INT", body="TEXT")
    tables.api.create_topic("all", 3)
    tables.api.create_topic("odd")
    tables.route(Route("all", TABLE, ("insert", "update", "delete"), "diff", partition_by=("user_id",)))
    tables.route(Route("odd", TABLE, ("insert", "update"), "full", _is_odd), "10 / user_id % 2 = 1")


def _is_odd(change: Change) -> bool:
    return 10 // change.row["user_id"] % 2 == 1


def write(tables: RoutedTables, first: int, count: int) -> None:
    for start in range(first, first + count, 500):
        ids = range(start, min(start + 500, first + count))
        tables.insert(TABLE, *({"id": id, "user_id": id % 4, "body": f"b{id}"} for id in ids))
    for id in range(first, first + 20, 2):
        tables.update(TABLE, id, body=None)
        tables.update(TABLE, id, user_id=3)
    for id in range(first, first + 20, 5):
        tables.delete(TABLE, id)


def flags(tables: RoutedTables, master: str, archive: Path | None = None, *more: str) -> list[str]:
    archives = [] if archive is None else ["--archives", str(archive)]
    return ["--server", tables.server.url, "--master", master, *archives, "--conf", MEMORY, *more]


def lag(tables: RoutedTables) -> int | None:
    """How many changes wait; `None` before the first pipeline."""
    statuses = tables.api.ask("/api/pipelines")
    return statuses[0]["lag"] if statuses else None


def until_routed(tables: RoutedTables, pipeline: CommandProcess) -> None:
    def is_routed() -> bool:
        assert not pipeline.has_ended, pipeline.output
        return lag(tables) == 0

    eventually(is_routed, "all changes routed", ROUTED_SECONDS)


def other_lines(pipeline: CommandProcess) -> list[str]:
    """What it printed that is not of an undisturbed run."""
    return [line for line in pipeline.output.splitlines() if not line.startswith(_OUR_LINES)]
