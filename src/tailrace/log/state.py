"""Everything that is derived from the log, in RocksDB, and the settled view of the state keys.

RocksDB runs without a write-ahead log of its own, because everything in it can be replayed from the log. One column family
means one sequence of memtables, so what survives a crash is always a prefix of what was written, and the checkpoint stamp in
it says from where to replay. Keys start with one byte that names their kind; `STATE` holds the keys of the store's users.

RocksDB may make anything durable at any moment, so a key must not reach it before the frame that sets it is durable itself.
Otherwise a power cut could leave state that the log knows nothing of. Until then `SettledState` holds the key, and also while
the disk is too full for RocksDB: the log has it already. With the keys, RocksDB gets the position up to which the log was
durable when they came. If the log ends before it, the log has lost its end.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from struct import Struct

from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

from tailrace.log.manifest import check_manifest
from tailrace.model.commit import Changes
from tailrace.model.errors import CorruptionError, FolderInUseError, StorageFailedError, StorageFullError, TailraceError
from tailrace.model.ids import Position
from tailrace.model.limits import MIB
from tailrace.model.topic import TOPIC_KEYS

CHUNK = b"i"
COUNTERS = b"n"
CURSOR = b"p"
META = b"m"
SEGMENT = b"g"
STATE = b"s"

OLD_COUNTER = b"c"
OLD_TIME = b"t"
"""Kinds of keys that only format 1 has."""

_MEMTABLE_BYTES = 16 * MIB
_CACHE_BYTES = 16 * MIB
_OPEN_FILES = 64
_LOG_FILES = 2
_MEMTABLES_SIZE = "rocksdb.cur-size-all-mem-tables"
_FLUSH_SLACK_BYTES = MIB


class StateDb:
    """An ordered map of bytes, with atomic batches of writes."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._folder = folder
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_MEMTABLE_BYTES)
        options.set_max_write_buffer_number(3)
        options.set_max_open_files(_OPEN_FILES)
        options.set_keep_log_file_num(_LOG_FILES)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        options.set_paranoid_checks(True)
        table = BlockBasedOptions()
        table.set_block_cache(Cache(_CACHE_BYTES))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        try:
            check_manifest(folder)
            access = AccessType.read_only() if read_only else AccessType.read_write()
            self._db = Rdict(str(folder), options, access_type=access)
        except Exception as error:
            raise _opening_error(folder, error) from error
        self._no_wal = WriteOptions()
        self._no_wal.disable_wal = True  # type: ignore[method-assign,assignment]  # the stubs are wrong: it is a property

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise _state_error(error) from error
        return value

    def batch(self) -> WriteBatch:
        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch) -> None:
        """Write all of the batch or nothing. It is durable after the next flush."""
        try:
            self._db.write(batch, self._no_wal)
        except Exception as error:
            raise _state_error(error) from error

    def items(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with the prefix and their values in order, from `prefix + start` on."""
        try:
            cursor = self._db.iter()
            cursor.seek(prefix + start)
            while cursor.valid():
                key = cursor.key()
                if not key.startswith(prefix):
                    return
                yield key, cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            raise _state_error(error) from error

    def at_or_before(self, prefix: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last item with the prefix whose key is not above `key`."""
        try:
            cursor = self._db.iter()
            cursor.seek_for_prev(key)
            if cursor.valid() and cursor.key().startswith(prefix):
                return cursor.key(), cursor.value()
            cursor.status()
        except Exception as error:
            raise _state_error(error) from error
        return None

    def flush(self) -> None:
        """Make everything written so far durable.

        RocksDB stops accepting writes when the disk is full, and recovers slowly. So it is not asked to flush when there is
        too little space for it.
        """
        disk = os.statvfs(self._folder)
        need = (self._db.property_int_value(_MEMTABLES_SIZE) or 0) + _FLUSH_SLACK_BYTES
        if disk.f_bavail * disk.f_frsize < need:
            raise StorageFullError(f"the disk is too full for the state ({need} bytes). Free some space and send again")
        try:
            self._db.flush(True)
        except Exception as error:
            raise _state_error(error) from error

    def close(self) -> None:
        """Close the database. What is not flushed may be lost; the log has it."""
        try:
            self._db.close()
        except Exception as error:
            if not isinstance(failure := _state_error(error), StorageFullError):
                raise failure from error
            del self._db


def saved_topics(state: "StateDb") -> Iterator[tuple[bytes, bytes]]:
    """Return the keys and values of all topics, as of the last checkpoint."""
    return ((key[len(STATE) :], value) for key, value in state.items(STATE + TOPIC_KEYS))


def after_prefix(prefix: bytes) -> bytes:
    """Return the smallest key above every key with this prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else b"\xff" * (len(prefix) + 1)


def _opening_error(folder: Path, error: Exception) -> Exception:
    if "lock" in str(error).lower():
        return FolderInUseError(f"{folder} is in use by another process")
    if isinstance(_state_error(error), StorageFullError):
        return StorageFullError(
            f"the state in {folder} can't be opened: {error}. Free some space and start again; nothing was lost"
        )
    return CorruptionError(
        f"the state in {folder} can't be opened: {error}. Restore the folder from a backup; the log beside it was not changed"
    )


def _state_error(error: Exception) -> Exception:
    """Turn an exception of RocksDB's bindings, which differ only in their text, into an error of ours."""
    if isinstance(error, TailraceError):
        return error
    text = str(error)
    if "Too many open files" in text:
        return StorageFullError(f"too many files are open ({text}). Send again")
    if "No space left" in text or "Disk quota" in text or "File too large" in text:
        return StorageFullError(f"the disk is too full for the state ({text}). Free some space and send again")
    if "Corruption" in text:
        return CorruptionError(f"the state is damaged ({text}). Restore the folder from a backup")
    return StorageFailedError(f"the state can't be read or written: {text}")


_APPLIED = META + b"applied"
_U64 = Struct(">Q")


class SettledState:
    """The settled view of the state keys: RocksDB, and above it what is not durable in the log yet.

    Written by the log's threads, read by any thread.
    """

    def __init__(self, db: StateDb) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._release_lock = threading.Lock()
        self._held: dict[bytes, bytes | None] = {}
        self._releasing: dict[bytes, bytes | None] = {}

    def applied(self) -> Position:
        """Return up to where the log was durable when RocksDB got the newest of its keys; 0 if that is not known."""
        packed = self._db.get(_APPLIED)
        return Position(_U64.unpack(packed)[0] if packed else 0)

    def hold(self, changes: Iterable[Changes]) -> None:
        """Show the keys of changes that are in the log but not durable yet, and keep them out of RocksDB."""
        with self._lock:
            for change in changes:
                for prefix in change.drop_prefixes:
                    self._held.update(dict.fromkeys(key[1:] for key, _ in self._db.items(STATE + prefix)))
                    self._held.update(dict.fromkeys(self._above(prefix, b"")))
                self._held.update(change.puts)

    @contextmanager
    def releasing(self, synced: Callable[[], Position]) -> Iterator[None]:
        """Wrap a sync of the log: what is held when it begins is durable when it ends, and is passed to RocksDB.

        `synced` returns, after the sync, how far the log is durable.
        """
        with self._release_lock:
            with self._lock:
                self._releasing, self._held = self._held, {}
            left = self._releasing
            try:
                yield
                if left:
                    self._write((Changes(puts=list(left.items())),), synced())
                    left = {}
            finally:
                with self._lock:
                    self._releasing, self._held = {}, {**left, **self._held}

    def apply(self, changes: Sequence[Changes], synced: Position) -> None:
        """Write changes to RocksDB, after all that is held. They and everything up to `synced` are durable in the log."""
        try:
            if self._held:
                with self.releasing(lambda: synced):
                    pass
            self._write(changes, synced)
        except StorageFullError:
            self.hold(changes)

    def _write(self, changes: Iterable[Changes], synced: Position) -> None:
        batch = self._db.batch()
        batch.put(_APPLIED, _U64.pack(synced))
        for change in changes:
            for prefix in change.drop_prefixes:
                batch.delete_range(STATE + prefix, after_prefix(STATE + prefix))
            for key, value in change.puts:
                if value is None:
                    batch.delete(STATE + key)
                else:
                    batch.put(STATE + key, value)
        self._db.write(batch)

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            if key in self._held:
                return self._held[key]
            if key in self._releasing:
                return self._releasing[key]
        return self._db.get(STATE + key)

    def range(self, prefix: bytes, start: bytes, limit: int | None) -> list[tuple[bytes, bytes]]:
        with self._lock:
            above = self._above(prefix, start)
        stored = ((key[1:], value) for key, value in self._db.items(STATE + prefix, start))
        if not above:
            return list(islice(stored, limit))
        merged: dict[bytes, bytes | None] = {**dict(stored), **above}
        return [(key, value) for key, value in sorted(merged.items()) if value is not None][:limit]

    def _above(self, prefix: bytes, start: bytes) -> dict[bytes, bytes | None]:
        """Return the keys that are not in RocksDB yet."""
        held = {**self._releasing, **self._held}
        return {key: value for key, value in held.items() if key.startswith(prefix) and key >= prefix + start}
