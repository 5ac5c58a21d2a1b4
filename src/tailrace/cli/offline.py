"""`tailrace fsck`, `dump` and `salvage`: check, print and repair a data folder, without a server.

RocksDB, SQLite and the record codecs are imported in the commands, because `--help` does without them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.display import ProgressState, progress
from tailrace.cli.errors import ExitCode, storage_failures
from tailrace.model.clock import hlc_counter, hlc_millis
from tailrace.model.text import counted

if TYPE_CHECKING:
    from tailrace.log.offline import DumpedBatch, DumpedFrame
    from tailrace.model.ids import TopicId
    from tailrace.model.topic import TopicNames
    from tailrace.store.salvage import Omission


_FSCK_COUNTS = ("segments", "frames", "batches", "records", "bytes")
_MAX_SHOWN_BYTES = 80


@storage_failures()
def fsck(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder of a server that is not running.")],
) -> None:
    """Check every byte of a data folder, and change nothing.

    Reads all frames, batches and records and compares their checksums. Checks
    that offsets and cursors have no gaps, that the index matches the log, that
    payload files exist and are complete, and that the tables hold exactly the
    rows that follow from the log. Exits with 1 if anything is wrong.

    [bold]Example[/]
    tailrace fsck ./data
    """

    from tailrace.log.fsck import run_fsck
    from tailrace.log.offline import offline_log
    from tailrace.model.limits import DEFAULT_LIMITS
    from tailrace.sql.tables.fsck import TablesReport, check_tables

    report = run_fsck(folder)
    tables = TablesReport([], ["the tables are not compared with the log, because the log is damaged"])
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
        typer.echo("wrong: there are more findings; the list is cut off here")
    counts = {name: getattr(report, name) for name in _FSCK_COUNTS}
    counts |= {"tables": tables.tables, "rows": tables.rows, "payloads": report.payloads}
    verdict = f"{len(report.findings):,} wrong" if report.findings else "all good"
    typer.echo(f"{folder}: {verdict} ({', '.join(f'{name} {count:,}' for name, count in counts.items())})")
    if report.findings:
        raise typer.Exit(ExitCode.REFUSED)


@storage_failures()
def dump(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The data folder; a server may have it open.")],
    start: Annotated[
        int, typer.Option("--from", metavar="CURSOR", min=0, help="Start with the frame that holds this cursor.")
    ] = 0,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Print at most this many frames.")] = None,
    records: Annotated[bool, typer.Option("--records", help="Also print keys and values.")] = False,
) -> None:
    """Print the frames of a data folder, in the order of the log.

    Each frame is shown with its position, its time and its content: batches by
    topic, partition and offsets, and changes of state. Where a frame can't be
    read, the reason is shown.

    [bold]Examples[/]
    tailrace dump ./data --limit 20
    tailrace dump ./data --from 4711 --records
    """
    from tailrace.log.offline import dump_frames, saved_topics_in
    from tailrace.model.topic import TopicNames

    names = TopicNames()
    names.learn_from(saved_topics_in(folder))
    printer = _Printer(names, with_records=records)
    wanted = (frame for frame in map(printer.learn_names, dump_frames(folder)) if _ends_after(frame, start))
    for frame in islice(wanted, limit):
        for line in printer.lines(frame):
            typer.echo(line)


class _Printer:
    def __init__(self, names: "TopicNames", *, with_records: bool) -> None:
        self._names = names
        self._with_records = with_records

    def learn_names(self, frame: "DumpedFrame") -> "DumpedFrame":
        """Remember the names of topics that the frame creates, so that batches can be shown by name."""
        self._names.learn_from(frame.changes.puts)
        return frame

    def lines(self, frame: "DumpedFrame") -> Iterator[str]:
        if frame.fault:
            yield f"position {frame.position} of {frame.segment}: no frame: {frame.fault}"
            return
        yield (
            f"cursor {frame.cursor}  position {frame.position}  {_time(hlc_millis(frame.hlc))}+{hlc_counter(frame.hlc)}"
            f"  {counted(frame.size, 'byte')}"
        )
        changes = frame.changes
        for topic_id, count in changes.creates:
            yield f"  create  {self._topic(topic_id)} with {counted(count, 'partition')}"
        for topic_id in changes.drops:
            yield f"  drop    {self._topic(topic_id)}"
        for partition, offset in changes.trims:
            yield f"  trim    {self._topic(partition.topic_id)}[{partition.number}] to offset {offset}"
        for batch in frame.batches:
            yield from self._batch(batch)
        for prefix in changes.drop_prefixes:
            yield f"  forget  {_shown(prefix)}*"
        for key, value in changes.puts:
            yield f"  delete  {_shown(key)}" if value is None else f"  put     {_shown(key)}  {counted(len(value), 'byte')}"
        if not frame.batches and not any(changes):
            yield f"  seal    everything below position {frame.synced} is synced"

    def _batch(self, batch: "DumpedBatch") -> Iterator[str]:
        last = batch.records - 1
        yield (
            f"  append  {self._topic(batch.topic_id)}[{batch.partition}]"
            f"  offsets {batch.base_offset} to {batch.base_offset + last}"
            f"  cursors {batch.cursor} to {batch.cursor + last}  {len(batch.bytes)} bytes"
        )
        if not self._with_records:
            return

        from tailrace.model.errors import CorruptBatchError
        from tailrace.model.limits import DEFAULT_LIMITS
        from tailrace.wire.payload_references import is_payload_reference, read_payload_reference
        from tailrace.wire.records import decode_batch

        payload = None
        if is_payload_reference(batch.bytes):
            try:
                reference = read_payload_reference(batch.bytes, DEFAULT_LIMITS)
            except CorruptBatchError as error:
                payload = str(error)
            else:
                payload = f"payload {reference.digest.hex()} of {reference.size} bytes"
        for record in decode_batch(batch.bytes, DEFAULT_LIMITS):
            key = "" if record.key is None else f"  key {_shown(record.key)}"
            value = payload or ("no value" if record.value is None else _shown(record.value))
            yield f"      {record.offset}  {_time(record.timestamp)}{key}  {value}"

    def _topic(self, topic_id: "TopicId") -> str:
        return self._names.name(topic_id) or f"topic {topic_id}"


def _ends_after(frame: "DumpedFrame", cursor: int) -> bool:
    end = max((batch.cursor + batch.records for batch in frame.batches), default=frame.cursor + 1)
    return bool(frame.fault) or end > cursor


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(data: bytes) -> str:
    """Return the data as text, cut to a readable length and without control characters."""
    text = data[:_MAX_SHOWN_BYTES].decode(errors="backslashreplace")
    safe = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
    return safe if len(data) <= _MAX_SHOWN_BYTES else f"{safe}... ({len(data)} bytes)"


@storage_failures()
def salvage(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The damaged data folder; no server may be running on it.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The new folder; it must be empty or not exist.")],
) -> None:
    """Copy the readable part of a damaged data folder into a new one.

    The damaged folder is only read. The new one has the same topics, offsets,
    groups and tables; where records are lost, their offsets stay empty. What
    is left out is listed. Cursors are new and higher than all old ones, so
    subscribers that continue from an old cursor read some records again and
    miss none. Exits with 1 if anything was left out.

    [bold]Example[/]
    tailrace salvage ./data ./salvaged
    """
    from tailrace.log.fsck import run_fsck
    from tailrace.store.salvage import salvage as run

    with progress("bytes") as bar:

        def left_out(lost: "Omission") -> None:
            bar.hide()
            size = "" if lost.size is None else f" ({counted(lost.size, 'byte')})"
            typer.echo(f"left out: {lost.where}: {lost.what}{size}: {lost.why}")

        done = run(source, target, left_out, lambda at, total: bar.advance(ProgressState(at, at, total)))
    report = run_fsck(target)
    for finding in report.findings:
        typer.echo(f"wrong in {target}: {finding.where}: {finding.what}")
    typer.echo(
        f"{target}: {counted(done.records, 'record')} copied ({counted(done.bytes, 'byte')}),"
        f" {counted(done.lost_records, 'offset')} empty, {counted(done.left_out, 'thing')} left out."
        f" It can take the place of {source}; its cursors begin at {done.first_cursor}"
    )
    if done.left_out or report.findings:
        raise typer.Exit(ExitCode.REFUSED)
