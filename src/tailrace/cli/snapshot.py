"""`tailrace snapshot`: asks for a snapshot of a source, and shows how far it is until it is over.

The capture of the source reads the snapshot; this command only asks for it and looks at `system.sources`. So it may end at any
time, and `--watch` looks on.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tailrace.cli.command_line import DEFAULT_SERVER, JsonOption, ServerOption
from tailrace.cli.display import ProgressDisplay, print_json, print_note, printable
from tailrace.cli.errors import CommandError, ExitCode, UsageError
from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.suggestions import did_you_mean
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.cli.server_api import ServerApi

_POLL_SECONDS = 0.3
_STOPPED_SECONDS = 10.0
"""How long a source may be stopped before that is told: a process that captures takes a second or two to start."""
_RETRY_SECONDS = 45.0
"""A capture that has failed tries again within half a minute."""


def snapshot(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The name of the source, as CREATE SOURCE gave it.")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="SCHEMA.TABLE", help="Only this table; may be repeated. By default all tables."),
    ] = None,
    resync: Annotated[
        bool, typer.Option("--resync", help="Create the slot anew, then compare all tables with the log.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Only look at a snapshot that runs already.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Read the rows that tables of a source have, and show how far that is.

    Rows of tables that have no changes in the log yet become inserts; other
    tables are compared with the log, and what differs is written. Changes of
    these tables are held meanwhile and follow. Ctrl-C leaves the snapshot
    running. With --resync a source continues whose slot was lost.

    [bold]Examples[/]
    tailrace snapshot shop
    tailrace snapshot shop --table public.orders --table public.items
    tailrace snapshot shop --resync
    tailrace snapshot shop --watch
    """
    if watch and (tables or resync):
        raise UsageError("--watch asks for nothing; leave out --table and --resync")
    if resync and tables:
        raise UsageError("--resync compares all tables; leave out --table")
    from tailrace.cli.server_api import ServerApi

    with ServerApi(server) as api, ProgressDisplay() as display:
        requests = SnapshotRequests(api, name)
        before = requests.source() if watch else requests.find_source()
        if before is not None and before.state == "failed" and not resync:
            raise CommandError(_failure(before))
        if watch and before is not None and before.snapshot_state is None:
            print_note(f"no snapshot of {before.name} is running")
            return
        events = None
        if not watch:
            events = requests.events()
            # Of an unknown source, too: it is the server that says so.
            requests.send("RESYNC" if resync else "SNAPSHOT", tables or [])
        follower = SnapshotFollower(requests.source_when_reached(display), display, resynced=before if resync else None)
        try:
            rows = follower.run()
        except KeyboardInterrupt:
            display.hide()
            print_note(f"the snapshot goes on; look at it again with: tailrace snapshot {name} --watch")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        written = None if events is None else requests.events() - events
    if as_json:
        print_json({"source": name, "rows": rows, "events": written, "seconds": round(follower.seconds, 3)})
    else:
        typer.echo(_summary(name, rows, written, follower.seconds))


def _summary(name: str, rows: int, events: int | None, seconds: float) -> str:
    text = f"{name}: {counted(rows, 'row')} read"
    if events is None:
        return f"{text} (watched for {seconds:.1f} s)"
    rate = f"{seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows/s"
    return f"{text} ({rate}), {counted(events, 'event')} written meanwhile"


class SnapshotStatus(NamedTuple):
    """What `system.sources` says about a source and its snapshot."""

    name: str
    state: str
    error: str | None
    advice: str | None
    owner: str | None
    captured_by: str
    snapshot_state: str | None
    snapshot_rows: int
    snapshot_total: int
    """An estimate of the database, which may be too small. 0 if there is none."""
    snapshot_table: str | None


_SOURCES = f"SELECT {', '.join(SnapshotStatus._fields)} FROM system.sources"  # noqa: S608


class SnapshotFollower:
    """Looks at a source until its snapshot is over."""

    def __init__(
        self,
        read: Callable[[], SnapshotStatus],
        display: ProgressDisplay,
        *,
        resynced: SnapshotStatus | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`resynced` is the status before a RESYNC was asked for. It counts until the capture has taken notice of that."""
        self._read = read
        self._display = display
        self._resynced = resynced
        self._pause = pause
        self._clock = clock
        self._began = clock()
        self._rows = 0
        self._rate_from: tuple[float, int] | None = None
        """When the rate began to be measured, and how many rows were read then."""
        self._told = ""

    @property
    def seconds(self) -> float:
        """How long it has been looking."""
        return self._clock() - self._began

    def run(self) -> int:
        """Return how many rows were read, when the snapshot is over. Raises `CommandError` if the source has failed."""
        while True:
            now = self._read()
            if self._is_noticed(now):
                if now.state == "streaming" and now.snapshot_state is None:
                    return now.snapshot_rows or self._rows
                if now.state == "failed":
                    self._tell("the snapshot goes on when the source does")
                    raise CommandError(_failure(now))
            self._tell_trouble(now)
            self._show(now)
            self._pause(_POLL_SECONDS)

    def _is_noticed(self, now: SnapshotStatus) -> bool:
        """Return whether the capture knows that a RESYNC was asked for. Until then its snapshot is `waiting`."""
        before = self._resynced
        if before is not None and (
            now.snapshot_state != "waiting"
            or (now.owner, now.state, now.error) != (before.owner, before.state, before.error)
            or (now.state == "failed" and self.seconds > _RETRY_SECONDS)
        ):
            self._resynced = None
        return self._resynced is None

    def _tell_trouble(self, now: SnapshotStatus) -> None:
        if now.state == "retrying":
            self._tell(f"{now.name} is retrying: {_with_advice(now)}. The snapshot goes on when that has passed")
        elif now.state == "stopped" and self.seconds > _STOPPED_SECONDS:
            start = f"Start: tailrace capture {now.name}" if now.captured_by == "command" else "Look into the log of the server"
            self._tell(f"nothing captures {now.name}, so its snapshot waits. {start}")

    def _tell(self, text: str) -> None:
        """Print a line, if it is another one than the last."""
        if text != self._told:
            self._told = text
            self._display.hide()
            print_note(printable(text))

    def _show(self, now: SnapshotStatus) -> None:
        if now.snapshot_state == "releasing":
            rows = now.snapshot_rows or self._rows
            self._display.show(f"{counted(rows, 'row')} read, releasing the changes that were held", rows, rows or None)
        elif now.snapshot_state == "reading" and now.state == "snapshot":
            self._show_reading(now)
        else:
            self._display.show(f"waiting for the capture of {printable(now.name)} to begin", 0, None)

    def _show_reading(self, now: SnapshotStatus) -> None:
        rows, at = now.snapshot_rows, self._clock()
        if self._rate_from is None or rows < self._rows or rows == self._rate_from[1]:
            # Before the first rows of a table that the log knows, its changes are read.
            self._rate_from = at, rows
        self._rows = rows
        began, first = self._rate_from
        # Beyond an estimate that was too small, nothing is known of how much is left.
        total = now.snapshot_total if now.snapshot_total > rows else None
        text = counted(rows, "row") if total is None else f"{rows:,} of about {total:,} rows"
        if rows > first:
            text += f", {(rows - first) / (at - began):,.0f} rows/s"
        if now.snapshot_table is not None:
            text += f", {now.snapshot_table}"
        self._display.show(printable(text), rows, total)


def _failure(status: SnapshotStatus) -> str:
    return printable(f"source {status.name!r} has failed: {_with_advice(status)}")


def _with_advice(status: SnapshotStatus) -> str:
    return ". ".join(text.removesuffix(".") for text in (status.error, status.advice) if text)


class SnapshotRequests:
    """Asks the server for a snapshot of one source, and about it."""

    def __init__(self, api: "ServerApi", name: str) -> None:
        self._api = api
        self._name = name

    def send(self, wanted: str, tables: list[str]) -> None:
        """Ask for a SNAPSHOT, of all tables if none are named, or a RESYNC."""
        from tailrace.cli.sql.script import quoted, without_place

        named = f" TABLE {', '.join(quoted(table) for table in tables)}" if tables else ""
        try:
            self._api.sql(f"ALTER SOURCE {quoted(self._name)} {wanted}{named}")
        except SqlError as error:
            raise CommandError(without_place(error)) from error

    def find_source(self) -> SnapshotStatus | None:
        return next((one for one in self._sources() if one.name.lower() == self._name.lower()), None)

    def source(self) -> SnapshotStatus:
        found = self.find_source()
        if found is None:
            known = [one.name for one in self._sources()]
            raise CommandError(f"there is no source {self._name!r}{did_you_mean(self._name, known)}")
        return found

    def source_when_reached(self, display: ProgressDisplay) -> Callable[[], SnapshotStatus]:
        """Return what reads the source, and waits for a server that is away for a while."""
        from tailrace.cli.server_api import Reconnection

        def tell(text: str) -> None:
            display.hide()
            print_note(text)

        reconnection = Reconnection(self._api, tell)

        def read() -> SnapshotStatus:
            while True:
                try:
                    found = self.source()
                except TailraceError as error:
                    reconnection.after(error)
                else:
                    reconnection.succeeded()
                    return found

        return read

    def events(self) -> int:
        """Return how many events of the source were ever written."""
        ((count,),) = self._api.query(
            "SELECT coalesce(sum(p.end_offset), 0)::bigint FROM system.partitions AS p JOIN system.source_tables AS t"
            " ON p.topic = t.changes_topic WHERE lower(t.source) = lower(?)",
            [self._name],
        )
        return int(count)

    def _sources(self) -> list[SnapshotStatus]:
        return [SnapshotStatus(*row) for row in self._api.query(_SOURCES)]
