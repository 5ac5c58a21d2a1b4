"""A table of messages with two routes, and changes of it: what is routed while things die."""

from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Route

TABLE = "chat.messages"


def create_chat(tables: RoutedTables) -> None:
    tables.create(TABLE, user_id="INT", body="TEXT")
    tables.api.create_topic("all", 12)
    tables.api.create_topic("keys")
    tables.route(Route("all", TABLE, ("insert", "update", "delete"), "full", partition_by=("user_id",)))
    tables.route(Route("keys", TABLE, ("insert", "delete"), "key", lambda change: change.row["user_id"] != 3), "user_id <> 3")


def write(tables: RoutedTables, first: int, count: int = 30) -> None:
    ids = range(first, first + count)
    tables.insert(TABLE, *({"id": id, "user_id": id % 7, "body": f"{id}" * 20} for id in ids))
    for id in ids[::3]:
        tables.update(TABLE, id, body=None)
    for id in ids[::5]:
        tables.delete(TABLE, id)


def all_routed(tables: RoutedTables) -> bool:
    (status,) = tables.api.ask("/api/pipelines")
    return status["lag"] == 0
