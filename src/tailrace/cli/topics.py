"""`tailrace topics`: list, create, describe, alter, clear and delete topics."""

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, CommandGroup, JsonOption, ServerOption, YesOption
from tailrace.cli.display import Heading, confirm, print_json, print_properties, print_table, size
from tailrace.cli.errors import UsageError
from tailrace.cli.sql.script import quoted
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name or alias.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as retention_seconds=3600; null removes it."),
]
_OFFSET_FIELDS = ("partition_id", "start_offset", "end_offset")
_TEXT_SETTINGS = frozenset({"cleanup_policy", "compression", "dedup", "timestamps"})


def topics_app() -> CommandGroup:
    app = CommandGroup("List, create, describe, alter, clear and delete topics.")
    app.add("list", list_topics)
    app.add("create", create)
    app.add("describe", describe)
    app.add("alter", alter)
    app.add("clear", clear)
    app.add("delete", delete)
    return app


def list_topics(as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """List topics with their partitions, records, size and retention.

    [bold]Example[/]
    tailrace topics list
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        (found,) = api.sql("SHOW TOPICS")
    names = [column["name"] for column in found["columns"]]
    topics = [dict(zip(names, row, strict=True)) for row in found["rows"]]
    if as_json:
        for topic in topics:
            print_json(topic)
        return
    numbers = ("partitions", "records", "size")
    headings = [Heading("topic"), *(Heading(name, is_number=True) for name in numbers), Heading("kept"), Heading("alias")]
    rows = [
        [each["name"], f"{each['partitions']}", f"{each['records']:,}", size(each["bytes"]), _kept(each), each["alias"] or ""]
        for each in topics
    ]
    print_table(headings, rows, "there are no topics; create one with: tailrace topics create NAME")


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Segments separated by dots: shop.orders.")],
    partitions: Annotated[int, typer.Option("--partitions", metavar="N", min=1, help="Number of partitions.")] = 1,
    alias: Annotated[str | None, typer.Option("--alias", metavar="NAME", help="A second name.")] = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Create a topic. An existing one with the same settings is left as it is; more partitions are added to it.

    [bold]Examples[/]
    tailrace topics create shop.orders --partitions 3
    tailrace topics create shop.events --set retention_seconds=604800
    """
    from tailrace.cli.server_api import ServerApi

    body = {"name": name, "partitions": partitions, "alias": alias, "settings": _settings(settings)}
    with ServerApi(server) as api:
        topic = api.post("/api/topics", body)
    _print_topic(topic, as_json=as_json)


def describe(topic: TopicArgument, as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show a topic: its settings, and the first and last offsets of its partitions.

    [bold]Example[/]
    tailrace topics describe shop.orders
    """
    from tailrace.cli.server_api import ServerApi

    path = _path(topic)
    with ServerApi(server) as api:
        found = api.get(path)
        partitions = list(api.pages(f"{path}/partitions", "partitions"))
    if as_json:
        print_json({**found, "partitions": partitions})
        return
    print_properties([("topic", found["name"]), ("alias", found["alias"]), *found["settings"].items()])
    headings = [Heading(name, is_number=True) for name in ("partition", "start", "end", "records", "size")]
    rows = [
        [*(str(each[name]) for name in _OFFSET_FIELDS), f"{_records(each):,}", size(each["size_bytes"])] for each in partitions
    ]
    print_table(headings, rows, "it has no partitions")


def alter(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option("--partitions", metavar="N", min=1, help="Grow to this.")] = None,
    alias: Annotated[str | None, typer.Option("--alias", metavar="NAME", help="A second name; '' removes it.")] = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Change a topic; settings that are not given stay as they are.

    [bold]Examples[/]
    tailrace topics alter shop.orders --partitions 6
    tailrace topics alter shop.orders --set retention_seconds=null
    """
    body: dict[str, Any] = {"settings": _settings(settings)} if settings else {}
    if partitions is not None:
        body["partitions"] = partitions
    if alias is not None:
        body["alias"] = alias or None
    if not body:
        raise UsageError("nothing to change; pass --partitions, --alias or --set")
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        found = api.patch(_path(topic), body)
    _print_topic(found, as_json=as_json)


def clear(
    topic: TopicArgument, yes: YesOption = False, as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER
) -> None:
    """Delete all records of a topic; its offsets continue where they were.

    [bold]Example[/]
    tailrace topics clear shop.orders --yes
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        name, records = _content(api, topic)
        confirm(f"{counted(records, 'record')} of {name} will be deleted.", yes=yes)
        api.sql(f"CLEAR TOPIC {quoted(name)}")
    _print_done("cleared", name, as_json=as_json)


def delete(
    topic: TopicArgument, yes: YesOption = False, as_json: JsonOption = False, server: ServerOption = DEFAULT_SERVER
) -> None:
    """Delete a topic with its records and the offsets of its groups. Not possible while routes lead to it.

    [bold]Example[/]
    tailrace topics delete shop.orders --yes
    """
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api:
        name, records = _content(api, topic)
        confirm(f"{name} will be deleted, with {counted(records, 'record')} and the offsets of its groups.", yes=yes)
        api.delete(_path(name))
    _print_done("deleted", name, as_json=as_json)


def _path(topic: str) -> str:
    return f"/api/topics/{quote(topic, safe='')}"


def _content(api: "ServerApi", topic: str) -> tuple[str, int]:
    """Return the topic's name, where an alias may be given, and its number of records."""
    name = api.get(_path(topic))["name"]
    return name, sum(map(_records, api.pages(f"{_path(topic)}/partitions", "partitions")))


def _records(partition: dict[str, Any]) -> int:
    count: int = partition["end_offset"] - partition["start_offset"]
    return count


def _settings(given: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text!r} must be NAME=VALUE")
        if value == "null":
            found[name] = None
        elif name in _TEXT_SETTINGS:
            found[name] = value
        elif value.isascii() and value.isdigit():
            found[name] = int(value)
        else:
            raise UsageError(f"--set {text!r}: the value of {name} must be a whole number or null")
    return found


def _print_done(what: str, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, what: True})
    else:
        typer.echo(f"{what} {name}")


def _print_topic(topic: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(topic)
        return
    also = f", alias {topic['alias']}" if topic["alias"] else ""
    typer.echo(f"{topic['name']}: {counted(topic['partitions'], 'partition')}{also}")


def _kept(topic: dict[str, Any]) -> str:
    """Describe the topic's retention."""
    policy = topic["cleanup_policy"]
    if policy == "compact":
        return "compacted"
    seconds, max_bytes = topic["retention_seconds"], topic["retention_max_bytes"]
    parts = ["compacted"] if policy != "delete" else []
    parts += [f"{seconds:,} s"] if seconds is not None else []
    parts += [size(max_bytes)] if max_bytes is not None else []
    return ", ".join(parts) or "for ever"
