"""`tailrace salvage`: copy what is good of a damaged folder into a new one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.exits import Exit
from tailrace.cli.progress import Reached, progress
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.store.salvage import Omission


def salvage(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The damaged data folder; no server may have it open.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The new folder; it must be empty or not there yet.")],
) -> None:
    """Copy what is good of a damaged data folder into a new one.

    The damaged folder is only read. The new one has the same topics, offsets,
    groups and tables; where records are lost, their offsets stay empty. Each
    thing that is left out is named. Cursors are new and higher than all old
    ones, so subscribers that go on from an old cursor read again what they
    know and miss nothing. Exits with 1 if anything was left out.

    [bold]Example[/]
    tailrace salvage ./data ./salvaged
    """
    # Loads RocksDB, which --help does without.
    from tailrace.log.fsck import run_fsck
    from tailrace.store.salvage import salvage as run

    with progress("bytes") as bar:

        def left_out(lost: "Omission") -> None:
            bar.step_aside()
            size = "" if lost.size is None else f" ({counted(lost.size, 'byte')})"
            typer.echo(f"left out: {lost.where}: {lost.what}{size}: {lost.why}")

        done = run(source, target, left_out, lambda at, total: bar.advance(Reached(at, at, total)))
    report = run_fsck(target)
    for finding in report.findings:
        typer.echo(f"wrong in {target}: {finding.where}: {finding.what}")
    typer.echo(
        f"{target}: {counted(done.records, 'record')} copied ({counted(done.bytes, 'byte')}),"
        f" {counted(done.lost_records, 'offset')} empty, {counted(done.left_out, 'thing')} left out."
        f" It can take the place of {source}; its cursors begin at {done.first_cursor}"
    )
    if done.left_out or report.findings:
        raise typer.Exit(Exit.REFUSED)
