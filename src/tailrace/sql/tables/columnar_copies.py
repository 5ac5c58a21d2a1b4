"""Columnar copies of tables, which queries read instead of SQLite's rows, and the keys that have changed since.

A copy is an Arrow file with all rows of a table as of one commit. It is made by a process of its own
(`select/columnar_builder.py`), in the background, after a query has read many rows. From before the process opens its snapshot
until the copy is dropped, the writer notes the key of each row that it changes, before it commits the change to SQLite. A query
that finds a copy opens its own snapshot of SQLite and takes the noted keys after that: its rows are those of the copy without
these keys, and those that its snapshot has with them. It does no harm if a key is noted whose row is the same in both.

What changes rows in another way than row by row drops the copy (`forget`). Files are removed when the server starts: a copy is
of use to the process that noted the keys.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from tailrace.model.ids import TableId
from tailrace.model.limits import Limits
from tailrace.model.table import ColumnKind, Table
from tailrace.sql.tables.columnar_process import BuildFailedError, BuildRequest, MakeFile, make_in_process
from tailrace.sql.tables.table_file import TableFile
from tailrace.sql.tables.values import StoredValue

_log = logging.getLogger(__name__)

FOLDER_NAME = "columns"
_KEY_KINDS: frozenset[ColumnKind] = frozenset(
    ("boolean", "smallint", "integer", "bigint", "text", "bytes", "date", "timestamp", "uuid")
)
"""Kinds of keys of which equal ones are the same bytes in SQLite, Python and Arrow."""
_FEW_KEYS = 1_000
_FEW_PARTS = 50
"""A copy is made again once more than `_FEW_KEYS` keys and a fiftieth of its rows have changed."""
_MANY_PARTS = 5
_PAUSES = 10
"""A copy of a table is made again after ten times the time that it took, so that it takes a tenth of a processor at most."""
_FIRST_PAUSE_SECONDS = 1.0
_REMEMBERED_PAUSES = 1_000
_KEY_BYTES = 256
"""What a key takes in a set, besides its texts."""

RowKey = tuple[StoredValue, ...]
ChangedKeysOf = Callable[[TableId], Iterable[RowKey] | None]
"""Returns the keys of the rows of a table that a transaction has changed, or `None` if they are not known."""


class ColumnarCopy:
    """A copy that is made or there. Its fields are changed under the lock of `ColumnarCopies`."""

    def __init__(self, table: Table, path: Path, generation: int) -> None:
        self.table = table
        self.path = path
        self.generation = generation
        self.keys: set[RowKey] = set()
        """The keys that have changed since the recording began."""
        self.key_bytes = 0
        """What they take in memory, roughly."""
        self.rows = 0
        self.size = 0
        self.is_valid = True
        self.uses = 0
        self.last_use = 0

    def note(self, keys: Iterable[RowKey]) -> None:
        """Add keys to those that have changed."""
        for key in keys:
            if key not in self.keys:
                self.keys.add(key)
                self.key_bytes += _KEY_BYTES + sum(len(cell) for cell in key if isinstance(cell, (str, bytes)))


class ColumnarView(NamedTuple):
    """A copy as a query sees it: the rows of the file without these keys are rows of its snapshot."""

    path: Path
    keys: Sequence[RowKey]


class StartedSnapshot(Protocol):
    """A snapshot of SQLite; see `readers`."""

    generation: int

    def start(self) -> None:
        """Fix the state that is read."""


class ColumnarCopies:
    """All copies. Used by the writer's thread, by the threads of queries and by a thread that makes copies."""

    def __init__(self, folder: Path, file: TableFile, limits: Limits, make_file: MakeFile = make_in_process) -> None:
        self._folder = folder
        self._make_file = make_file
        self._file = file
        self._limits = limits
        self._lock = threading.Lock()
        """Held from before the keys of a transaction are noted until SQLite has committed it."""
        self._copies: dict[TableId, ColumnarCopy] = {}
        self._building: dict[TableId, ColumnarCopy] = {}
        self._wanted: set[TableId] = set()
        self._forgotten: set[TableId] = set()
        """Tables that the open transaction of the writer changes in another way than row by row."""
        self._not_before: dict[TableId, float] = {}
        """When a copy of a table may be made again."""
        self._numbers = count(1)
        self._thread = ThreadPoolExecutor(1, "tailrace-columns")
        self._is_closed = False
        shutil.rmtree(folder, ignore_errors=True)

    def __len__(self) -> int:
        return len(self._copies)

    def has_copy(self, table: Table) -> bool:
        """Return whether queries over the table read a copy."""
        copy = self._copies.get(table.id)
        return copy is not None and copy.table == table

    @contextmanager
    def committing(self, changed_keys: ChangedKeysOf) -> Iterator[None]:
        """Note the keys that a transaction has changed; SQLite commits it inside of this context."""
        with self._lock:
            for copy in [*self._copies.values(), *self._building.values()]:
                keys = changed_keys(copy.table.id)
                if keys is None:
                    self._drop(copy)
                    continue
                copy.note(keys)
                if len(copy.keys) > self._most_keys(copy):
                    self._drop(copy)
            self._bound_keys()
            for table_id in self._forgotten:
                self._forget(table_id)
            try:
                yield
            finally:
                self._forgotten.clear()

    def forget(self, table_id: TableId) -> None:
        """Drop the copy of a table whose rows or columns the writer's open transaction changes otherwise than row by row.

        Call it in the writer's thread before the transaction commits; until then no other copy is made.
        """
        with self._lock:
            self._forgotten.add(table_id)
            self._forget(table_id)

    def want(self, table: Table) -> None:
        """Make a copy of the table in the background, unless there is one that will do. Called when many rows were read."""
        with self._lock:
            copy = self._copies.get(table.id)
            if (
                self._is_closed
                or table.id in self._wanted
                or table.id in self._forgotten
                or (copy is not None and copy.table == table and not self._is_worn(copy))
                or time.monotonic() < self._not_before.get(table.id, 0.0)
                or not self._limits.columnar_bytes
                or not can_have_copy(table)
            ):
                return
            self._wanted.add(table.id)
            self._thread.submit(self._make, table)

    @contextmanager
    def leased(self, tables: Iterable[Table]) -> Iterator["ColumnarLeases"]:
        """Return the copies of these tables as far as there are any. They stay on disk until the context ends.

        Take them before the snapshot from which other rows are read.
        """
        with self._lock:
            found = {table.id: copy for table in tables if (copy := self._copies.get(table.id)) and copy.table == table}
            for copy in found.values():
                copy.uses += 1
                copy.last_use = next(self._numbers)
        try:
            yield ColumnarLeases(self, found)
        finally:
            with self._lock:
                for copy in found.values():
                    copy.uses -= 1
                    self._clean(copy)

    def views(self, found: Mapping[TableId, ColumnarCopy], generation: int) -> dict[TableId, ColumnarView]:
        """Return the leased copies that are still valid, with the keys that have changed until now."""
        views = {}
        worn = []
        with self._lock:
            for table_id, copy in found.items():
                if copy.is_valid and copy.generation == generation:
                    views[table_id] = ColumnarView(copy.path, list(copy.keys))
                    if self._is_worn(copy):
                        worn.append(copy.table)
        for table in worn:
            self.want(table)
        return views

    def close(self) -> None:
        """Stop the process that makes a copy, and remove all files. The queries must have ended."""
        with self._lock:
            self._is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _most_keys(self, copy: ColumnarCopy) -> int:
        most = self._limits.columnar_keys
        return most if copy.table.id in self._building and not copy.size else min(most, _FEW_KEYS + copy.rows // _MANY_PARTS)

    def _bound_keys(self) -> None:
        """Drop copies, those with the most keys first, while the keys of all take more memory than they may."""
        copies = [*self._copies.values(), *self._building.values()]
        taken = sum(copy.key_bytes for copy in copies)
        for copy in sorted(copies, key=lambda copy: copy.key_bytes, reverse=True):
            if taken <= self._limits.columnar_keys * _KEY_BYTES:
                return
            taken -= copy.key_bytes
            self._drop(copy)

    def _is_worn(self, copy: ColumnarCopy) -> bool:
        return len(copy.keys) > _FEW_KEYS + copy.rows // _FEW_PARTS

    def _forget(self, table_id: TableId) -> None:
        for copy in (self._copies.get(table_id), self._building.get(table_id)):
            if copy is not None:
                self._drop(copy)
        self._not_before.pop(table_id, None)

    def _drop(self, copy: ColumnarCopy) -> None:
        copy.is_valid = False
        copy.keys = set()
        for kept in (self._copies, self._building):
            if kept.get(copy.table.id) is copy:
                del kept[copy.table.id]
        self._clean(copy)

    def _clean(self, copy: ColumnarCopy) -> None:
        if not copy.is_valid and not copy.uses:
            with suppress(OSError):
                copy.path.unlink(missing_ok=True)

    def _make(self, table: Table) -> None:
        """Make a copy. Runs in the thread for that."""
        started = time.monotonic()
        try:
            copy = self._begin(table)
            if copy is not None:
                try:
                    self._build(copy)
                except Exception as error:  # noqa: BLE001  queries go on without a copy, whatever it is
                    _log.info("No columnar copy of table %s was made: %s", table.name, error)
                    with self._lock:
                        self._drop(copy)
        finally:
            took = max(time.monotonic() - started, _FIRST_PAUSE_SECONDS)
            with self._lock:
                self._wanted.discard(table.id)
                self._not_before[table.id] = time.monotonic() + _PAUSES * took
                if len(self._not_before) > _REMEMBERED_PAUSES:
                    self._not_before.pop(next(iter(self._not_before)))

    def _begin(self, table: Table) -> ColumnarCopy | None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            if self._is_closed or table.id in self._forgotten:
                return None
            path = self._folder / f"{table.id}-{next(self._numbers)}.arrow"
            copy = self._building[table.id] = ColumnarCopy(table, path, self._file.generation)
            return copy

    def _build(self, copy: ColumnarCopy) -> None:
        with self._lock:
            used = sum(other.size for other in self._copies.values())
        free = _free_bytes(self._folder) - self._limits.min_free_bytes
        room = min(self._limits.columnar_bytes - used, free)
        request = BuildRequest(str(self._file.path), self._file.log_id, copy.table, str(copy.path), room)
        try:
            rows = self._make_file(request, lambda: self._opening(copy), lambda: copy.is_valid and not self._is_closed)
        except BuildFailedError:
            self._make_room(copy)
            raise
        self._install(copy, rows)

    @contextmanager
    def _opening(self, copy: ColumnarCopy) -> Iterator[None]:
        """Keep others from replacing the file of the tables while it is opened."""
        with self._file.lock:
            if self._file.generation != copy.generation:
                raise BuildFailedError("the file of the tables was replaced")
            yield

    def _install(self, copy: ColumnarCopy, rows: int) -> None:
        size = copy.path.stat().st_size
        with self._lock:
            if not copy.is_valid:
                return
            copy.rows, copy.size = rows, size
            del self._building[copy.table.id]
            former = self._copies.get(copy.table.id)
            if former is not None:
                self._drop(former)
            copy.last_use = next(self._numbers)
            self._copies[copy.table.id] = copy

    def _make_room(self, copy: ColumnarCopy) -> None:
        """Drop the copy that was not used for longest, so that this one fits when it is tried again."""
        with self._lock:
            others = [other for other in self._copies.values() if other.table.id != copy.table.id]
            if others:
                self._drop(min(others, key=lambda other: other.last_use))


class ColumnarLeases:
    """The copies that a query has taken."""

    def __init__(self, copies: ColumnarCopies, found: Mapping[TableId, ColumnarCopy]) -> None:
        self._copies = copies
        self._found = found

    def views(self, snapshot: StartedSnapshot) -> Mapping[TableId, ColumnarView]:
        """Return the copies as the snapshot sees them, which is started by this."""
        if not self._found:
            return {}
        snapshot.start()
        return self._copies.views(self._found, snapshot.generation)


def can_have_copy(table: Table) -> bool:
    """Return whether the keys of the table can be compared in Arrow."""
    kinds = {column.type.kind for column in table.columns if column.name in table.primary_key}
    return bool(kinds) and kinds <= _KEY_KINDS


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
