"""Kills a server in the middle of writing, starts it again, and shows that it kept every promise."""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from demo.audit import PARTITIONS, Finding, audit, read_back
from demo.writers import ORDERS, PAYMENTS, WRITERS, History, write_until_dead
from tests.support.server import ServerProcess

WRITE_SECONDS = 3.0


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="tailrace-demo-")) / "data"
    history = History()
    with ServerProcess(folder) as server:
        console.print("[bold]1. A server on a new folder[/]")
        console.print(f"   {server.ready_line.strip()}")
        for topic in (ORDERS, PAYMENTS):
            httpx.post(f"{server.url}/api/topics", json={"name": topic, "partitions": PARTITIONS}).raise_for_status()

        console.print(f"\n[bold]2. {WRITERS} writers publish to {ORDERS} and {PAYMENTS}, both in one frame[/]")
        asyncio.run(_write_and_kill(server, history))
        console.print(f"   {len(history.acked):,} frames acknowledged in {WRITE_SECONDS:g} s, each after its sync.")
        console.print(f"   SIGKILL to process {server.pid} with {len(history.in_doubt)} requests in flight.")

        console.print("\n[bold]3. The same folder again[/]")
        began = time.monotonic()
        server.start()
        console.print(f"   {server.ready_line.strip()}")
        console.print(f"   From start to ready, interpreter included: {time.monotonic() - began:.2f} s.")

        console.print("\n[bold]4. Everything read back and compared with what the writers were told[/]")
        with httpx.Client(base_url=server.url) as client:
            findings = audit(history, read_back(client))
        console.print(_table(findings))
        stopped = server.terminate()

    console.print("[bold]5. The folder checked, byte by byte[/]")
    fsck = subprocess.run([sys.executable, "-m", "tailrace", "fsck", str(folder)], capture_output=True, text=True)
    console.print(f"   {fsck.stdout.strip()}{fsck.stderr.strip()}")

    broken = sum(finding.violations for finding in findings)
    kept = bool(history.acked) and not broken and stopped == 0 and fsck.returncode == 0
    console.print("\n[bold green]Every promise kept.[/]" if kept else "\n[bold red]A promise was broken.[/]")
    console.print(f"   .venv/bin/tailrace dump {folder} --records   prints what was written")
    console.print("   docs/guarantees.md says what is promised, and which test shows it")
    return 0 if kept else 1


async def _write_and_kill(server: ServerProcess, history: History) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_until_dead(server.url, history))
        await asyncio.sleep(WRITE_SECONDS)
        server.kill()


def _table(findings: list[Finding]) -> Table:
    table = Table("promise", "looked at", "broken")
    for finding in findings:
        table.add_row(finding.claim, finding.counted, f"[red]{finding.violations}" if finding.violations else "[green]0")
    return table


if __name__ == "__main__":
    sys.exit(main())
