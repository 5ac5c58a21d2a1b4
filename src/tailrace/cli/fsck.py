"""`tailrace fsck`: check a data folder and name what is wrong."""

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.exits import Exit

_COUNTED = ("segments", "frames", "batches", "records", "bytes", "payloads")


def fsck(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder of a server that is not running.")],
) -> None:
    """Check every byte of a data folder, and change nothing.

    Reads all frames and batches, compares their checksums, checks that offsets
    and cursors are dense, that the index names exactly what the log holds and
    that the payloads that records refer to are there and whole.
    Exits with 1 if anything is wrong.

    [bold]Example[/]
    tailrace fsck ./data
    """
    # Loads RocksDB, which --help does without.
    from tailrace.log.fsck import check

    report = check(folder)
    for note in report.notes:
        typer.echo(f"note: {note}")
    for finding in report.findings:
        typer.echo(f"wrong: {finding.where}: {finding.what}")
    if report.is_cut_short:
        typer.echo("wrong: and more; the list is cut short")
    counted = ", ".join(f"{name} {getattr(report, name):,}" for name in _COUNTED)
    verdict = f"{len(report.findings):,} wrong" if report.findings else "all good"
    typer.echo(f"{folder}: {verdict} ({counted})")
    if report.findings:
        raise typer.Exit(Exit.REFUSED)
