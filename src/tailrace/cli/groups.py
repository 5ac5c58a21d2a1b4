"""`tailrace groups`: list, describe, reset and delete consumer groups."""

from typing import Annotated
from urllib.parse import quote

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, CommandGroup, JsonOption, PartitionOption, ServerOption, YesOption
from tailrace.cli.consume import parse_start
from tailrace.cli.display import Heading, confirm, print_json, print_properties, print_table
from tailrace.model.text import counted

_OFFSET_FIELDS = ("topic_name", "partition_id", "committed_offset", "end_offset")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


def groups_app() -> CommandGroup:
    app = CommandGroup("List, describe, reset and delete consumer groups.")
    app.add("list", list_groups)
    app.add("describe", describe)
    app.add("reset", reset)
    app.add("delete", delete)
    return app


def list_groups(as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """List groups with their members and their lag.

    [bold]Example[/]
    tailrace groups list
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        (found,) = api.sql("SHOW GROUPS")
    names = [column["name"] for column in found["columns"]]
    if as_json:
        for row in found["rows"]:
            print_json(dict(zip(names, row, strict=True)))
        return
    headings = [Heading("group"), Heading("state"), Heading("members", is_number=True), Heading("lag", is_number=True)]
    rows = [[group, state, str(members), f"{lag:,}"] for group, state, members, lag in found["rows"]]
    print_table(headings, rows, "there are no groups")


def describe(group: GroupArgument, as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show a group: its state, its members, and its committed offset and lag in each partition.

    [bold]Example[/]
    tailrace groups describe billing
    """
    from tailrace.cli.server_api import ServerApi

    path = f"/api/groups/{quote(group, safe='')}"
    with ServerApi(server) as api:
        found = api.get(path)
        offsets = list(api.pages(f"{path}/offsets", "offsets"))
    if as_json:
        print_json({**found, "offsets": offsets})
        return
    members = ", ".join(f"{member['client_id']} at {member['client_host']}" for member in found["members"])
    print_properties(
        [
            ("group", found["group_id"]),
            ("protocol", found["group_type"]),
            ("state", found["state"]),
            ("members", members),
            ("lag", f"{found['lag']:,}"),
        ]
    )
    headings = [Heading("topic"), *(Heading(name, is_number=True) for name in ("partition", "committed", "end", "lag"))]
    rows = [[*(str(each[name]) for name in _OFFSET_FIELDS), f"{each['lag']:,}"] for each in offsets]
    print_table(headings, rows, "it has no committed offsets")


def reset(
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", help="earliest, latest, an offset, a time, or how long ago: 90s, 10m, 2h, 3d."),
    ],
    partition: PartitionOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Set the committed offsets of a group without members, forwards or back.

    [bold]Examples[/]
    tailrace groups reset billing shop.orders --to earliest
    tailrace groups reset billing shop.orders --to 2026-01-28T12:00:00Z --yes
    """
    start = parse_start(to)
    confirm(f"{group!r} will read {topic} from {to}: it may read records again or skip some.", yes=yes)
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        body = {"topic": topic, "start": start, "partition_id": partition}
        answer = api.put(f"/api/groups/{quote(group, safe='')}/offsets", body)
    if as_json:
        print_json(answer)
        return
    for each in answer["partitions"]:
        typer.echo(f"{group} continues at offset {each['committed_offset']} of {answer['topic_name']}[{each['partition_id']}]")


def delete(
    group: GroupArgument, yes: YesOption = False, as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER
) -> None:
    """Delete a group without members, and its offsets.

    [bold]Example[/]
    tailrace groups delete billing
    """
    from tailrace.cli.server_api import ServerApi

    path = f"/api/groups/{quote(group, safe='')}"
    with ServerApi(server) as api:
        offsets = sum(1 for _ in api.pages(f"{path}/offsets", "offsets"))
        confirm(f"{group!r} will be deleted, with {counted(offsets, 'offset')}.", yes=yes)
        api.delete(path)
    if as_json:
        print_json({"group_id": group, "deleted": True})
    else:
        typer.echo(f"deleted {group}")
