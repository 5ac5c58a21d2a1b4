"""`tailrace snapshot` on a PostgreSQL: a bar at a terminal, Ctrl-C, lines elsewhere, and a slot that was lost."""

import re
import sys
from contextlib import suppress
from pathlib import Path

import psycopg

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import CTRL_C, Terminal
from tests.support.captured_source import captured_source
from tests.support.eventually import eventually
from tests.support.postgres_server import PostgresServer

ROWS = 20_000
CHILD = """
from tailrace.cli import display, snapshot
from tailrace.cli.main import main

display._BAR_DELAY_SECONDS = 0.0
snapshot._POLL_SECONDS = 0.02
main()
"""
"""The command with a bar from the start, so that it is seen also on a fast machine."""


def test_a_snapshot_is_followed_at_a_terminal_and_elsewhere(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text(f"[limits]\nsnapshot_chunk_bytes = {64 << 10}\n")
    with (
        PostgresServer(tmp_path / "postgres") as postgres,
        captured_source(tmp_path, postgres, "--config", str(config)) as source,
        Commands(source.server.url) as tailrace,
    ):
        source.insert("CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL, body text)")
        source.insert(f"INSERT INTO items SELECT g, 0, repeat('x', 100) FROM generate_series(1, {ROWS}) g")
        source.insert("ANALYZE items")
        source.create(snapshot="on demand")

        def at_terminal(*words: str) -> Terminal:
            return Terminal([sys.executable, "-c", CHILD, "snapshot", *words], tailrace.environment)

        bar = re.compile(rf"━ +\d+% [\d,]+ of about {ROWS:,} rows, [\d,]+ rows/s, public\.items")
        with at_terminal("shop") as terminal:
            terminal.wait_until(lambda screen: bar.search(screen) is not None, "the bar")
            terminal.type(CTRL_C)
            assert terminal.end() == 130
            assert "the snapshot goes on; look at it again with: tailrace snapshot shop --watch" in terminal.text
        with at_terminal("shop", "--watch") as terminal:
            assert terminal.end() == 0
            told = rf"shop: {ROWS:,} rows read \(watched for [\d.]+ s\)|no snapshot of shop is running"
            assert re.fullmatch(told, terminal.text), "the bar is gone, and only the summary is there"

        ended = tailrace.done("snapshot", "shop", "--table", "public.items")
        assert re.fullmatch(rf"shop: {ROWS:,} rows read \(\S+ s, \S+ rows/s\), 0 events written meanwhile\n", ended.out)
        ended = tailrace.run("snapshot", "shop", "--table", "public.itens")
        told = "tailrace: source 'shop' captures no table 'public.itens'; did you mean 'public.items'?\n"
        assert (ended.code, ended.err) == (1, told)

        slot = source.row().slot
        eventually(lambda: _drop_slot(postgres, slot), "no slot")
        source.insert("UPDATE items SET n = 7 WHERE id < 5")
        source.await_state("failed")
        ended = tailrace.run("snapshot", "shop")
        assert (ended.code, "has failed: the slot" in ended.err, "RESYNC" in ended.err) == (1, True, True)
        (told_json,) = tailrace.done("snapshot", "shop", "--resync", "--json").objects
        assert (told_json["rows"], told_json["events"]) == (ROWS, 4)
        eventually(lambda: source.row().state == "streaming", "a source that streams again")


def _drop_slot(postgres: PostgresServer, slot: str) -> bool:
    """Return whether the slot is dropped. The capture may use it again after its connection was ended."""
    postgres.ask("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s", slot)
    with suppress(psycopg.errors.ObjectInUse):
        postgres.ask("SELECT pg_drop_replication_slot(%s)", slot)
        return True
    return False
