"""`tailrace shadow`: copies topics between a server and a Kafka, shows how far that is, and moves their users."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, CommandGroup, JsonOption, ServerLogin, ServerOption
from tailrace.cli.display import (
    Heading,
    ProgressDisplay,
    print_json,
    print_note,
    print_properties,
    print_table,
    printable,
    size,
)
from tailrace.cli.errors import CommandError, ExitCode, UsageError
from tailrace.cli.status_lines import print_error, print_status
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.model.shadow import ShadowReport
    from tailrace.shadow.server_api import ShadowApi
    from tailrace.shadow.verification import PartitionResult

T = TypeVar("T")

_ORPHAN_SECONDS = 5.0
_WATCH_SECONDS = 1.0


class _Producers(StrEnum):
    REFUSE = "refuse"
    FORWARD = "forward"


class _Compared(StrEnum):
    TAIL = "tail"
    ALL = "all"


NameArgument = Annotated[str, typer.Argument(metavar="SHADOW", help="The name of the shadow, as CREATE SHADOW gave it.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Do everything that changes nothing.")]


def shadow_app() -> CommandGroup:
    app = CommandGroup("Copy topics to a Kafka or from it, exactly once, and move their users.")
    app.add("status", status)
    app.add("verify", verify)
    app.add("cut-over", cut_over)
    app.add("roll-back", roll_back)
    app.add("run", run)
    return app


def status(
    name: Annotated[str | None, typer.Argument(metavar="SHADOW", help="Only this one, with its topics.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Show how far shadows are copied, and what is wrong.

    [bold]Examples[/]
    tailrace shadow status
    tailrace shadow status prod
    tailrace shadow status prod --watch
    """
    from tailrace.cli.server_api import ServerApi

    if watch and (as_json or name is None):
        raise UsageError("--watch shows one shadow; give its name, and leave out --json")
    with ServerApi(server) as api:
        if watch and name is not None:
            _watch(api, name)
            return
        if name is None:
            found = api.get("/api/shadows")
            if as_json:
                for each in found:
                    print_json(each)
            else:
                _print_shadows(found)
            return
        details = api.get(f"/api/shadows/{quote(name, safe='')}")
    if as_json:
        print_json(details)
    else:
        _print_shadow(details)


def _watch(api: Any, name: str) -> None:
    try:
        with ProgressDisplay() as display:
            while True:
                found = api.get(f"/api/shadows/{quote(name, safe='')}")
                done, total = _progress(found)
                display.show(_line(found), done, total or None)
                time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _line(found: Mapping[str, Any]) -> str:
    parts = [f"{found['name']}: {found['state']}"]
    if found["phase"] != "copying":
        parts.append(found["phase"])
    parts.append(f"{found['lag']:,} offsets behind")
    if found["lag_seconds"]:
        parts.append(f"{found['lag_seconds']:.1f} s")
    parts.append(f"{found['records_per_second']:,} records/s, {size(found['bytes_per_second'])}/s")
    if found["error"]:
        parts.append(found["error"])
    return printable(", ".join(parts))


def _progress(found: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many offsets are copied, and of how many."""
    partitions = found["partitions"]
    done = sum(each["position"] - each["start"] for each in partitions)
    return done, sum(max(each["end"], each["position"]) - each["start"] for each in partitions)


def _print_shadows(found: Sequence[Mapping[str, Any]]) -> None:
    headings = [Heading(name) for name in ("shadow", "kafka", "phase", "state")]
    headings += [Heading(name, is_number=True) for name in ("lag", "seconds", "records/s")]
    rows = [
        [
            each["name"],
            f"{each['direction']} {each['bootstrap']}",
            each["phase"],
            each["state"],
            f"{each['lag']:,}",
            "" if each["lag_seconds"] is None else f"{each['lag_seconds']:.1f}",
            f"{each['records_per_second']:,}",
        ]
        for each in found
    ]
    print_table(headings, rows, "there are no shadows; CREATE SHADOW makes one")


def _print_shadow(found: Mapping[str, Any]) -> None:
    done, total = _progress(found)
    share = f"{done / total:.1%} of {counted(total, 'offset')}" if total else "nothing to copy"
    print_properties(
        [
            ("shadow", f"{found['name']}, {found['direction']} {found['bootstrap']}"),
            ("topics", ", ".join(found["topics"])),
            ("phase", found["phase"] + (f", records here: {found['producers']}" if found["producers"] else "")),
            ("state", found["state"]),
            ("copied", f"{share}, {found['lag']:,} behind"),
            ("rate", f"{found['records_per_second']:,} records/s, {size(found['bytes_per_second'])}/s"),
            ("process", found["owner"]),
            ("error", found["error"]),
            ("advice", found["advice"]),
        ]
    )
    for note in found["notes"]:
        typer.echo(printable(f"note: {note}"))
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for each in found["partitions"]:
        topics.setdefault(each["topic"], []).append(each)
    headings = [Heading("topic"), *(Heading(text, is_number=True) for text in ("partitions", "copied", "lag"))]
    rows = [
        [
            topic,
            str(len(partitions)),
            f"{sum(each['position'] - each['start'] for each in partitions):,}",
            f"{sum(max(0, each['end'] - each['position']) for each in partitions):,}",
        ]
        for topic, partitions in sorted(topics.items())
    ]
    print_table(headings, rows, "no topics are copied yet")


def verify(
    name: NameArgument,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Compare both sides: counts and checksums of each partition.

    Records are compared by key, value, headers and timestamp, in their order.
    The first record that differs is named. Copying goes on meanwhile. This
    command reads both clusters itself, so it needs the password of the Kafka
    as the copying process does. Exit code 1 if something differs.

    [bold]Examples[/]
    tailrace shadow verify prod
    tailrace shadow verify prod --topic app.orders
    """
    results = _with_clusters(name, server, lambda api: _verify(api, topics or []), "tailrace: the comparison was ended")
    if as_json:
        for result in results:
            import msgspec

            print_json({**msgspec.structs.asdict(result), "equal": result.is_equal})
    else:
        _print_results(results)
    if not all(result.is_equal for result in results):
        raise typer.Exit(ExitCode.REFUSED)


async def _verify(api: "ShadowApi", topics: Sequence[str]) -> "list[PartitionResult]":
    from tailrace.shadow.shadow_clusters import shadow_clusters
    from tailrace.shadow.verification import Verification

    found = await api.status()
    async with shadow_clusters(found, api.access) as clusters:
        copies = await clusters.copies()
        unknown = set(topics) - {topic for topic, _ in copies}
        if unknown:
            raise CommandError(f"topic {min(unknown)!r} is not copied by shadow {found.status.shadow.name!r}")
        chosen = {partition: copy for partition, copy in copies.items() if not topics or partition[0] in topics}
        total = sum(max(0, copy.position - copy.start) for copy in chosen.values())
        done = 0
        with ProgressDisplay() as display:

            def advance(offsets: int) -> None:
                nonlocal done
                done += offsets
                display.show(f"{done:,} of {counted(total, 'offset')} compared", min(done, total), total or None)

            verification = Verification(clusters.origin.cluster, clusters.target.cluster, advance)
            return [result async for result in verification.verify(chosen)]


def _print_results(results: "Sequence[PartitionResult]") -> None:
    from tailrace.shadow.cut_over import show_difference

    headings = [Heading("topic"), *(Heading(text, is_number=True) for text in ("partition", "from", "to", "records"))]
    rows = [
        [
            each.topic,
            str(each.partition),
            f"{each.first_offset:,}",
            f"{each.end_offset:,}",
            f"{each.records:,}" if each.records == each.target_records else f"{each.records:,} / {each.target_records:,}",
            "differs" if each.difference is not None else "equal by key" if each.by_key else "equal",
        ]
        for each in results
    ]
    print_table([*headings, Heading("result")], rows, "nothing is copied yet")
    for each in results:
        if each.difference is not None:
            print_note(printable(f"tailrace: {show_difference(each)}"))


def cut_over(
    name: NameArgument,
    producers: Annotated[
        _Producers, typer.Option("--producers", help="What happens to records that are produced here afterwards.")
    ] = _Producers.REFUSE,
    compared: Annotated[
        _Compared, typer.Option("--verify", help="Compare the newest records of each partition, or all of them.")
    ] = _Compared.TAIL,
    dry_run: DryRunOption = False,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", metavar="S", min=1, help="How long the rest may take to be copied.")
    ] = 120.0,
    quiet_seconds: Annotated[
        float, typer.Option("--quiet-seconds", metavar="S", min=0, help="From Kafka: how long nothing may be written there.")
    ] = 10.0,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move the users of the topics to the target.

    Writes to the topics are fenced here, the rest is copied and compared, and
    the offsets of groups are set; then records are refused here, or stored
    and copied on. If anything fails, or this command is ended, the fence is
    given up and everything is as it was. From a Kafka: stop its producers
    first. This command reaches both clusters itself, so it needs the password
    of the Kafka as the copying process does.

    [bold]Examples[/]
    tailrace shadow cut-over prod --dry-run
    tailrace shadow cut-over prod
    tailrace shadow cut-over prod --producers forward
    """
    from tailrace.shadow.cut_over import CutOver, CutOverOptions
    from tailrace.shadow.shadow_clusters import shadow_clusters

    options = CutOverOptions(producers.value, dry_run, compared is _Compared.ALL, drain_seconds, quiet_seconds)

    async def move(api: "ShadowApi") -> None:
        found = await api.status()
        async with shadow_clusters(found, api.access) as clusters:
            await CutOver(api, clusters, options, _Steps()).run(found)

    _with_clusters(name, server, move, "tailrace: the cut-over was ended")
    typer.echo(f"{name}: the rehearsal went well; nothing was changed" if dry_run else f"{name}: cut over")


def roll_back(name: NameArgument, dry_run: DryRunOption = False, server: ServerOption = DEFAULT_SERVER) -> None:
    """Take a cut-over back, as long as nothing else was written to the target.

    [bold]Example[/]
    tailrace shadow roll-back prod
    """
    from tailrace.shadow.roll_back import RollBack
    from tailrace.shadow.shadow_clusters import shadow_clusters

    async def move(api: "ShadowApi") -> None:
        found = await api.status()
        async with shadow_clusters(found, api.access) as clusters:
            await RollBack(api, clusters, _Steps(), is_rehearsal=dry_run).run(found)

    _with_clusters(name, server, move, "tailrace: the roll-back was ended")
    typer.echo(f"{name}: it can be rolled back; nothing was changed" if dry_run else f"{name}: rolled back")


class _Steps:
    """Prints each step with the time since the first one."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, step: str, what: str) -> None:
        print_status(printable(f"{time.monotonic() - self._began:6.1f} s  {step + ':':<10} {what}"))


def _with_clusters(
    name: str, server: ServerLogin, work: "Callable[[ShadowApi], Coroutine[None, None, T]]", interrupted: str
) -> T:
    """Run what asks the server and both clusters, and turn what fails into one line for a person."""
    from tailrace.shadow.cut_over import CutOverError
    from tailrace.shadow.failures import ShadowError
    from tailrace.shadow.server_api import ShadowApi

    async def run() -> T:
        api = ShadowApi(server.url, name, server.source, what="command")
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except CutOverError as error:
        raise CommandError(str(error)) from error
    except ShadowError as error:
        raise CommandError(f"{error.message}. {error.advice}") from error
    except KeyboardInterrupt:
        print_note(interrupted)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def run(name: NameArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Copy the topics of a shadow.

    A server copies its shadows itself. Use this command where it can't reach
    the Kafka: create the shadow WITH (copied_by = 'command') and run this on
    a machine that reaches both. May be stopped or killed at any time: the
    next one continues exactly where the target ends.

    [bold]Examples[/]
    tailrace shadow run prod
    tailrace shadow run prod --server http://tailrace:8080
    """
    from tailrace.model.errors import TailraceError

    end_with_parent_if_asked(_ORPHAN_SECONDS)
    logging.basicConfig(level=logging.WARNING, format="tailrace: %(message)s", stream=sys.stderr)
    try:
        _copy_on_uvloop(name, server)
    except TailraceError as error:
        print_error(f"tailrace: {error}")
        raise typer.Exit(ExitCode.REFUSED) from None
    print_status("stopped")


def _copy_on_uvloop(name: str, server: ServerLogin) -> None:
    import uvloop

    from tailrace.shadow.copier import Copier

    async def copy() -> None:
        copier = Copier(name, server.url, login=server.source, on_report=_StatePrinter(name))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, copier.stop)
        await copier.run()

    uvloop.run(copy())


class _StatePrinter:
    """Prints each state once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def __call__(self, report: "ShadowReport") -> None:
        if report.state != self._last:
            self._last = report.state
            print_status(f"{self._name}: {report.state}")
