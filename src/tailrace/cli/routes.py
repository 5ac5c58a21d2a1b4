"""`tailrace routes`: list, explain, add and drop the routes from tables to topics.

A route is added and explained by the SQL statement that defines it, so an error can point at the place in it.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, CommandGroup, JsonOption, ServerLogin, ServerOption, YesOption
from tailrace.cli.display import Heading, confirm, print_json, print_note, print_table
from tailrace.cli.errors import UsageError, exit_code_of
from tailrace.cli.sql.script import quoted_where_needed
from tailrace.model.errors import TailraceError
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.cli.sql.script import SqlRequest

_OPERATIONS = ("insert", "update", "delete")


class PayloadChoice(StrEnum):
    KEY = "key"
    FULL = "full"
    DIFF = "diff"


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that gets the messages.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table whose changes are routed.")]
OnOption = Annotated[str, typer.Option("--on", metavar="OPS", help="Any of insert, update, delete, separated by commas.")]
WhereOption = Annotated[str | None, typer.Option("--where", metavar="SQL", help="A condition on OLD.x and NEW.x.")]
PartitionByOption = Annotated[
    str | None,
    typer.Option("--partition-by", metavar="SQL", help="Values that choose the partition, separated by commas."),
]
PayloadOption = Annotated[PayloadChoice, typer.Option("--payload", help="What a message holds of the row.")]


def routes_app() -> CommandGroup:
    app = CommandGroup("List, try out, add and drop routes.")
    app.add("list", list_routes)
    app.add("explain", explain)
    app.add("add", add)
    app.add("drop", drop)
    return app


def list_routes(as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """List routes in the order in which they were added.

    [bold]Example[/]
    tailrace routes list
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        routes = list(api.pages("/api/routes", "routes"))
    if as_json:
        for route in routes:
            print_json(route)
        return
    headings = [Heading(name) for name in ("table", "topic", "on", "where", "partition by", "payload")]
    rows = [
        [
            route["source_table"],
            route["topic_name"],
            ", ".join(route["operations"]),
            route["where"] or "",
            ", ".join(route["partition_by"]),
            route["payload_mode"],
        ]
        for route in routes
    ]
    print_table(headings, rows, "there are no routes; add one with: tailrace routes add TOPIC TABLE")


def explain(
    topic: TopicArgument,
    table: TableArgument,
    on: OnOption = "insert",
    where: WhereOption = None,
    partition_by: PartitionByOption = None,
    payload: PayloadOption = PayloadChoice.KEY,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Try a route on the last changes of the table: which match, and what would be published. Changes nothing.

    [bold]Example[/]
    tailrace routes explain app.new_messages chat.messages --where is_visible
    """
    request = _statement("EXPLAIN ", topic, table, on, where, partition_by, payload)
    (result,) = _run(request, server)
    from tailrace.cli.sql.results import JsonPrinter, TablePrinter

    printer = JsonPrinter() if as_json else TablePrinter(timing=False)
    printer.show(result)


def add(
    topic: TopicArgument,
    table: TableArgument,
    on: OnOption = "insert",
    where: WhereOption = None,
    partition_by: PartitionByOption = None,
    payload: PayloadOption = PayloadChoice.KEY,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Publish the existing rows first.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Route changes of a table to a topic from now on.

    With --snapshot the existing rows are published first.

    [bold]Examples[/]
    tailrace routes add app.new_messages chat.messages --where is_visible
    tailrace routes add app.audit chat.messages --on update,delete
    """
    (result,) = _run(_statement("", topic, table, on, where, partition_by, payload, snapshot=snapshot), server)
    if as_json:
        print_json({"topic_name": topic, "source_table": table, "since": result["cursor"]})
    else:
        typer.echo(f"changes of {table} go to {topic}, from cursor {result['cursor']} on")


def drop(
    topic: TopicArgument,
    table: TableArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Drop all routes from a table to a topic. Published messages stay.

    [bold]Example[/]
    tailrace routes drop app.new_messages chat.messages
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        ended = sum(_leads(route, topic, table) for route in api.pages("/api/routes", "routes"))
        confirm(f"{counted(ended, 'route')} from {table} to {topic} will end.", yes=yes)
        api.delete("/api/routes", topic=topic, source_table=table)
    if as_json:
        print_json({"topic_name": topic, "source_table": table, "dropped": True})
    else:
        typer.echo(f"changes of {table} no longer go to {topic}")


def _leads(route: dict[str, Any], topic: str, table: str) -> bool:
    return bool(route["topic_name"] == topic and route["source_table"].lower() == table.lower())


def _statement(
    verb: str,
    topic: str,
    table: str,
    on: str,
    where: str | None,
    partition_by: str | None,
    payload: PayloadChoice,
    *,
    snapshot: bool = False,
) -> "SqlRequest":
    from tailrace.cli.sql.script import SqlRequest, StatementReader

    operations = [word.strip().lower() for word in on.split(",")]
    if unknown := [word for word in operations if word not in _OPERATIONS]:
        raise UsageError(f"--on {unknown[0]!r} is not an operation; it takes insert, update and delete")
    names = f"{verb}ALTER TOPIC {quoted_where_needed(topic)}\nADD SOURCE {quoted_where_needed(table)}"
    text = f"{names}\nON {', '.join(operations).upper()}"
    text += f"\nWHERE ({where}\n)" if where is not None else ""
    text += f"\nPARTITION BY ({partition_by}\n)" if partition_by is not None else ""
    text += f"\nWITH (payload = '{payload}'{', snapshot = true' if snapshot else ''})"
    reader = StatementReader()
    if reader.feed(text):
        raise UsageError("--where and --partition-by take expressions, without a ;")
    return SqlRequest(text)


def _run(request: "SqlRequest", server: ServerLogin) -> list[dict[str, Any]]:

    from tailrace.cli.server_api import ServerApi
    from tailrace.cli.sql.script import explain_sql_error as pointed

    with ServerApi(server) as api:
        try:
            return api.sql(request.text)
        except TailraceError as error:
            print_note(f"tailrace: {pointed(error, request)}")
            raise typer.Exit(exit_code_of(error)) from None
