"""`tailrace fsck`: check a data folder and name what is wrong."""

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.exits import Exit

_COUNTED = ("segments", "frames", "batches", "records", "bytes")


def fsck(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder of a server that is not running.")],
) -> None:
    """Check every byte of a data folder, and change nothing.

    Reads all frames, batches and records, compares their checksums, checks
    that offsets and cursors are dense, that the index names exactly what the
    log holds, that the payloads that records refer to are there and whole, and
    that the tables hold exactly the rows that the log says.
    Exits with 1 if anything is wrong.

    [bold]Example[/]
    tailrace fsck ./data
    """
    # Loads RocksDB and SQLite, which --help does without.
    from tailrace.log.fsck import run_fsck
    from tailrace.log.offline import offline_log
    from tailrace.model.limits import DEFAULT_LIMITS
    from tailrace.sql.tables.fsck import TablesReport, check_tables

    report = run_fsck(folder)
    tables = TablesReport([], ["the tables are not held against the log, because the log is damaged"])
    if not report.findings:
        with offline_log(folder) as log:
            tables = check_tables(folder, log, DEFAULT_LIMITS)
        for where, what in tables.findings:
            report.find(where, what)
    for note in (*report.notes, *tables.notes):
        typer.echo(f"note: {note}")
    for finding in report.findings:
        typer.echo(f"wrong: {finding.where}: {finding.what}")
    if report.is_cut_short:
        typer.echo("wrong: and more; the list is cut short")
    counts = {name: getattr(report, name) for name in _COUNTED}
    counts |= {"tables": tables.tables, "rows": tables.rows, "payloads": report.payloads}
    verdict = f"{len(report.findings):,} wrong" if report.findings else "all good"
    typer.echo(f"{folder}: {verdict} ({', '.join(f'{name} {count:,}' for name, count in counts.items())})")
    if report.findings:
        raise typer.Exit(Exit.REFUSED)
