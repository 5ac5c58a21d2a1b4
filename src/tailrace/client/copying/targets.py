"""Where COPY writes to: CSV and Parquet files. A file that has a name appears under it when it is complete."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tailrace.client.copying.csv_reader import CsvFormat
from tailrace.client.copying.csv_writer import CsvWriter
from tailrace.client.copying.sources import FileFormat, format_of
from tailrace.model.errors import ConfigurationError
from tailrace.wire.arrow_stream import InvalidStreamError, MessageSplitter

_GROUP_ROWS = 131_072
_GROUP_BYTES = 32 * 1024 * 1024
"""A row group of Parquet is written when it has so many rows or bytes."""


class ArrowDecoder:
    """Turns the parts of an Arrow IPC stream into record batches."""

    def __init__(self) -> None:
        self._splitter = MessageSplitter()
        self.schema: Any = None

    @property
    def is_complete(self) -> bool:
        return self._splitter.is_ended

    def feed(self, data: bytes) -> list[Any]:
        """Return the batches that this part completes. Raises `InvalidStreamError`."""
        import pyarrow as pa

        batches = []
        for message in self._splitter.feed(data):
            if self.schema is None:
                self.schema = pa.ipc.read_schema(pa.py_buffer(message.data))
            elif message.is_batch:
                batches.append(pa.ipc.read_record_batch(pa.py_buffer(message.data), self.schema))
            else:
                raise InvalidStreamError("unexpected message")
        return batches


class CopyTarget:
    """A file that rows are written to: `begin`, `write` any number of times, then `finish`, or `discard` after a failure."""

    def __init__(self, target: Any, *, format: FileFormat | None, header: bool, csv: CsvFormat) -> None:
        self._format = format_of(target, format)
        self._header = header
        self._csv = CsvWriter(csv)
        self._path: Path | None = None
        self._part: Path | None = None
        self._parquet: Any = None
        self._schema: Any = None
        self._waiting: list[Any] = []
        self._file: BinaryIO = self._open(target)
        self.written_bytes = 0

    def begin(self, schema: Any) -> None:
        self._schema = schema
        if self._format == "parquet":
            from pyarrow import parquet

            self._parquet = parquet.ParquetWriter(self._file, schema)
        elif self._header:
            self._write(self._csv.header(schema.names))

    def write(self, batches: list[Any]) -> None:
        import pyarrow as pa

        if self._parquet is None:
            for column_batch in [pa.Table.from_batches(batches, self._schema)] if batches else []:
                self._write(self._csv.rows(column_batch.columns))
            return
        self._waiting += batches
        rows = sum(batch.num_rows for batch in self._waiting)
        if rows >= _GROUP_ROWS or sum(batch.nbytes for batch in self._waiting) >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        """Complete the file and give it its name."""
        if self._parquet is not None:
            if self._waiting:
                self._write_group()
            self._parquet.close()
        self._file.flush()
        if self._path is not None:
            self._file.close()
            if self._part is not None:
                self._part.replace(self._path)

    def discard(self) -> None:
        """Remove what was written. What went to an open file or a pipe stays."""
        if self._path is None:
            return
        with suppress(Exception):
            if self._parquet is not None:
                self._parquet.close()
        with suppress(OSError):
            self._file.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)

    def _open(self, target: Any) -> BinaryIO:
        if not isinstance(target, str | os.PathLike):
            if not hasattr(target, "write"):
                raise ConfigurationError(f"a {type(target).__name__} is not a path or a binary file")
            file: BinaryIO = target
            return file
        self._path = Path(os.fspath(target))
        if self._path.exists() and not self._path.is_file():
            return self._path.open("wb")
        self._part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        return self._part.open("wb")

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            taken = self._file.write(left)
            left = left[len(left) if taken is None else taken :]
        self.written_bytes += len(data)

    def _write_group(self) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting = []
        self._parquet.write_table(table, row_group_size=table.num_rows)
        self.written_bytes += table.nbytes
