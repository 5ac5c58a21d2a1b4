"""The settled view of the state keys: RocksDB, and above it what is written to the log but not synced yet.

RocksDB may make anything durable at any moment, so a key must not reach it before the frame that sets it is durable itself;
else a power cut could leave state that the log knows nothing of. Until then the key is held here. It is held as well while
the disk has no room for RocksDB: the log has it already. With the keys goes the position up to which the log was durable when
they came: where the log ends before it, the state knows what the log has lost.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from struct import Struct

from tailrace.log.state import META, STATE, StateDb, after_prefix
from tailrace.model.changes import Changes
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Position

_APPLIED = META + b"applied"
_U64 = Struct(">Q")


class SettledState:
    """Written by the log's threads, read by anybody."""

    def __init__(self, db: StateDb) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._release_lock = threading.Lock()
        self._held: dict[bytes, bytes | None] = {}
        self._releasing: dict[bytes, bytes | None] = {}

    def applied(self) -> Position:
        """The log was durable up to here when RocksDB got the newest of its keys; 0 if that was not written down."""
        packed = self._db.get(_APPLIED)
        return Position(_U64.unpack(packed)[0] if packed else 0)

    def hold(self, changes: Iterable[Changes]) -> None:
        """These changes are in the log but not durable: show their keys, keep them out of RocksDB."""
        with self._lock:
            for change in changes:
                for prefix in change.drop_prefixes:
                    self._held.update(dict.fromkeys(key[1:] for key, _ in self._db.items(STATE + prefix)))
                    self._held.update(dict.fromkeys(self._above(prefix, b"")))
                self._held.update(change.puts)

    @contextmanager
    def releasing(self, synced: Callable[[], Position]) -> Iterator[None]:
        """Around a sync of the log: what is held when it begins is durable when it ends, and goes to RocksDB.

        `synced` says afterwards how far the log is durable.
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
        """These changes are durable in the log, as all is up to `synced`: write them through, behind all that is held."""
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
        """What is not in RocksDB yet."""
        held = {**self._releasing, **self._held}
        return {key: value for key, value in held.items() if key.startswith(prefix) and key >= prefix + start}
