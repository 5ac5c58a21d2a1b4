"""`tailrace snapshot` with a server that says what the test wants: what is asked, shown and answered."""

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer

from tailrace.cli import display, snapshot
from tailrace.cli.errors import CommandError, ExitCode, UsageError
from tailrace.cli.snapshot import SnapshotFollower, SnapshotStatus
from tailrace.model.errors import ServerUnreachableError, SqlError

STREAMING = SnapshotStatus("shop", "streaming", None, None, "process 1", "server", None, 0, 0, None)
WAITING = STREAMING._replace(snapshot_state="waiting")
READING = STREAMING._replace(
    state="snapshot", snapshot_state="reading", snapshot_rows=500, snapshot_total=2_000, snapshot_table="public.orders"
)
RELEASING = READING._replace(snapshot_state="releasing", snapshot_rows=2_000)
OVER = STREAMING._replace(snapshot_rows=2_000, snapshot_total=2_000)
RETRYING = READING._replace(state="retrying", error="no route to host", advice="It is tried again")
FAILED = STREAMING._replace(state="failed", error="the slot is gone", advice="Run ALTER SOURCE ... RESYNC")


class FakeServer:
    """Answers each look at `system.sources` with the next status, or raises it."""

    was_reached = True

    def __init__(self, *statuses: SnapshotStatus | BaseException | None) -> None:
        self.statements: list[str] = []
        self.refusal: Exception | None = None
        self._statuses = list(statuses)
        self._events = 100

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def sql(self, text: str) -> None:
        self.statements.append(text)
        if self.refusal is not None:
            raise self.refusal

    def get(self, path: str) -> None:
        assert path == "/health"

    def query(self, text: str, _: Sequence[object] = ()) -> list[Any]:
        if "end_offset" in text:
            self._events += 7
            return [[self._events - 7]]
        status = self._statuses.pop(0)
        if isinstance(status, BaseException):
            raise status
        return [] if status is None else [list(status)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(display, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(display, "_BAR_DELAY_SECONDS", 0.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    def serve(*statuses: SnapshotStatus | BaseException | None) -> FakeServer:
        fake = FakeServer(*statuses)
        monkeypatch.setattr("tailrace.cli.server_api.ServerApi", lambda _: fake)
        return fake

    return serve


def test_lines_tell_how_far_it_is_and_the_last_what_was_done(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    more = READING._replace(snapshot_rows=900)
    fake = server(STREAMING, WAITING, READING, more, RELEASING, OVER)
    snapshot.snapshot("shop")
    shown = capsys.readouterr()
    waiting, first, second, releasing = shown.err.splitlines()
    assert waiting == "waiting for the capture of shop to begin"
    assert first == "500 of about 2,000 rows, public.orders"
    assert second.startswith("900 of about 2,000 rows, ")
    assert second.endswith(" rows/s, public.orders")
    assert releasing == "2,000 rows read, releasing the changes that were held"
    assert shown.out.startswith("shop: 2,000 rows read (")
    assert shown.out.endswith(" rows/s), 7 events written meanwhile\n")
    assert fake.statements == ['ALTER SOURCE "shop" SNAPSHOT']


def test_tables_are_named_as_they_were_given(server: Any) -> None:
    fake = server(STREAMING, OVER)
    snapshot.snapshot("shop", ["public.Order", "audit.log"])
    assert fake.statements == ['ALTER SOURCE "shop" SNAPSHOT TABLE "public"."Order", "audit"."log"']


def test_the_summary_can_be_json(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING, OVER)
    snapshot.snapshot("shop", as_json=True)
    assert capsys.readouterr().out.startswith('{"source":"shop","rows":2000,"events":7,"seconds":')


def test_watch_asks_for_nothing(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake = server(READING, READING, OVER)
    snapshot.snapshot("SHOP", watch=True)
    assert fake.statements == []
    assert capsys.readouterr().out.startswith("SHOP: 2,000 rows read (watched for ")


def test_watch_says_that_there_is_nothing_to_watch(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING)
    snapshot.snapshot("shop", watch=True)
    assert capsys.readouterr().err == "no snapshot of shop is running\n"


def test_watch_knows_names_that_were_meant(server: Any) -> None:
    server(STREAMING, STREAMING)
    with pytest.raises(CommandError, match="there is no source 'shpo'; did you mean 'shop'"):
        snapshot.snapshot("shpo", watch=True)


def test_an_unknown_source_or_table_gives_the_message_of_the_server(server: Any) -> None:
    server(None).refusal = SqlError("source 'shop' captures no table 'public.itens'", 1, 1)
    with pytest.raises(CommandError, match=r"^source 'shop' captures no table 'public\.itens'$"):
        snapshot.snapshot("shop", ["public.itens"])


@pytest.mark.parametrize("flags", [{"watch": True, "tables": ["a.b"]}, {"watch": True, "resync": True}])
def test_watch_takes_nothing_to_ask_for(flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--watch asks for nothing"):
        snapshot.snapshot("shop", **flags)


def test_resync_takes_no_tables() -> None:
    with pytest.raises(UsageError, match="--resync compares all tables"):
        snapshot.snapshot("shop", ["a.b"], resync=True)


@pytest.mark.parametrize("watch", [True, False])
def test_nothing_is_asked_of_a_source_that_has_failed(server: Any, watch: bool) -> None:
    fake = server(FAILED)
    with pytest.raises(CommandError, match=r"source 'shop' has failed: the slot is gone\. Run ALTER SOURCE") as raised:
        snapshot.snapshot("shop", watch=watch)
    assert raised.value.exit_code == ExitCode.REFUSED
    assert fake.statements == []


def test_a_source_that_fails_on_the_way_ends_it(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING, READING, FAILED._replace(snapshot_state="reading"))
    with pytest.raises(CommandError, match="the slot is gone"):
        snapshot.snapshot("shop")
    assert capsys.readouterr().err.endswith("the snapshot goes on when the source does\n")


def test_retrying_is_told_once_and_waited_for(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING, RETRYING, READING, RETRYING, RETRYING, OVER)
    snapshot.snapshot("shop")
    shown = capsys.readouterr()
    told = "shop is retrying: no route to host. It is tried again. The snapshot goes on when that has passed"
    assert shown.err.splitlines().count(told) == 1
    assert shown.out.startswith("shop: 2,000 rows read")


def test_a_source_that_was_dropped_ends_it(server: Any) -> None:
    server(STREAMING, READING, None, None)
    with pytest.raises(CommandError, match="there is no source 'shop'"):
        snapshot.snapshot("shop")


def test_a_server_that_is_away_is_waited_for(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING, READING, ServerUnreachableError("no server at here"), OVER)
    snapshot.snapshot("shop")
    assert "no server at here; reconnecting" in capsys.readouterr().err


def test_ctrl_c_leaves_the_snapshot_running(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server(STREAMING, READING, KeyboardInterrupt())
    with pytest.raises(typer.Exit) as raised:
        snapshot.snapshot("shop")
    assert raised.value.exit_code == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.endswith("the snapshot goes on; look at it again with: tailrace snapshot shop --watch\n")


def test_what_was_before_a_resync_does_not_count(server: Any) -> None:
    """The server shows that one is waiting, and for a moment not that the old process is gone."""
    waiting = FAILED._replace(snapshot_state="waiting")
    started = waiting._replace(state="starting", error=None, owner="process 2")
    fake = server(FAILED, waiting, waiting, started, WAITING._replace(owner="process 2"), OVER._replace(owner="process 2"))
    snapshot.snapshot("shop", resync=True)
    assert fake.statements == ['ALTER SOURCE "shop" RESYNC']
    fake = server(STREAMING, WAITING, WAITING, OVER._replace(owner="process 2"))
    snapshot.snapshot("shop", resync=True)
    with pytest.raises(IndexError):
        fake.query("system.sources")


def test_a_resync_that_fails_again_ends_it(server: Any) -> None:
    waiting = FAILED._replace(snapshot_state="waiting")
    server(FAILED, waiting, waiting._replace(owner="process 2"))
    with pytest.raises(CommandError, match="the slot is gone"):
        snapshot.snapshot("shop", resync=True)


def test_the_rate_counts_from_the_first_rows_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Before them the log is read, which may take minutes."""
    rows = [0, 0, 100, 300]
    clock = iter(range(0, 1_000, 10))
    statuses: Iterator[SnapshotStatus] = iter([*(READING._replace(snapshot_rows=count) for count in rows), OVER])
    follower = SnapshotFollower(
        lambda: next(statuses), display.ProgressDisplay(), pause=lambda _: None, clock=lambda: float(next(clock))
    )
    assert follower.run() == 2_000
    assert [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "public.orders",
        "public.orders",
        "10 rows/s",
        "15 rows/s",
    ]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_percentage_only_of_an_estimate_that_may_hold(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = READING._replace(snapshot_rows=2_500, snapshot_total=2_500)
    server(STREAMING, READING, beyond, RELEASING._replace(snapshot_rows=2_500), OVER)
    screen = _Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", screen)
    shown: list[str] = []
    show = display.ProgressDisplay.show

    def show_and_draw(self: display.ProgressDisplay, text: str, done: int, total: int | None) -> None:
        screen.truncate(0)
        show(self, text, done, total)
        # Draws it: by itself it does so ten times a second.
        self.hide()
        shown.append(screen.getvalue())

    monkeypatch.setattr(display.ProgressDisplay, "show", show_and_draw)
    snapshot.snapshot("shop")
    reading, past_estimate, releasing = shown
    assert "25%" in reading
    assert "500 of about 2,000 rows" in reading
    assert "%" not in past_estimate
    assert "2,500 rows, " in past_estimate
    assert "100%" in releasing
    assert "2,500 rows read, releasing the changes that were held" in releasing
