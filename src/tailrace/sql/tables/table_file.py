"""The file of the tables on disk: detects damage, and replaces the file by a rebuilt one.

Every page ends with a checksum, which SQLite's checksum VFS writes, and compares whenever it reads a page from the file or from
its write-ahead log. Two kinds of damage it can't see are checked here. First, the header says that pages have checksums, and a
reader that finds another header stops comparing: see `check_sealed`. Second, frames of the write-ahead log that can't be read
are treated as its end, as after a power failure; but if some of its pages were already copied to the file, the file is a
mixture of old and new pages, each of them valid. So before pages are copied, a mark beside the file records which write-ahead
log they are from; if that one has lost frames, the file is damaged.

A file that is damaged, missing or of an older format is rebuilt beside the old one, renamed to `.rebuilt` when it is complete,
and only then replaces the old one. Connections to the old file may stay open: they see its content, and change nothing by its
name.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from struct import Struct, iter_unpack

import apsw
import apsw.sqlite_extra

from tailrace.model.errors import ConfigurationError
from tailrace.model.killpoint import killpoint

CHECKSUM_BYTES = 8
FORMAT = 2
"""The format of the file. Format 1 has no checksums."""

_DAMAGE = frozenset(
    (
        apsw.SQLITE_IOERR_DATA,
        apsw.SQLITE_IOERR_READ,
        apsw.SQLITE_IOERR_SHORT_READ,
        apsw.SQLITE_IOERR_CORRUPTFS,
    )
)
_FORMAT_AT = 60
_HEADER_BYTES = 100
_WAL_HEADER = Struct(">8I")
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_FRAME = Struct(">6I")
_SALTS = slice(16, 24)


class DamagedFileError(Exception):
    """The file of the tables is not what was written. It is rebuilt from the log."""


class TableFile:
    """The path of the file, and a counter of its replacements."""

    def __init__(self, path: Path, log_id: str) -> None:
        self.path = path
        self.log_id = log_id
        """The log that the rows come from."""
        self.generation = 0
        """Increases when the file is replaced: connections to an earlier one must be closed."""
        self.lock = threading.Lock()
        """Held while a connection is opened, and while the file is replaced."""
        self._noted = b""

    @property
    def building(self) -> Path:
        return self._beside(".rebuilding")

    def why_rebuild(self) -> str | None:
        """Return why the existing file can't be opened as it is, or `None` if it can."""
        self.finish_replacing()
        try:
            header = _read(self.path, 0, _HEADER_BYTES)
        except FileNotFoundError:
            return "is missing"
        if len(header) == _HEADER_BYTES and int.from_bytes(header[_FORMAT_AT : _FORMAT_AT + 4]) == 1:
            return "has no checksums, like files of older versions"
        return None if header else "is empty"

    def begin_replacing(self) -> None:
        """Remove what an earlier attempt left, and create the new file, readable by its owner only."""
        for path in self._with_logs(self.building):
            path.unlink(missing_ok=True)
        make_private_file(self.building)

    def replace(self) -> None:
        """Replace the old file by the new one, which is complete and closed."""
        _sync(self.building)
        killpoint("rebuild.made")
        self.building.rename(self._beside(".rebuilt"))
        _sync(self.path.parent)
        killpoint("rebuild.decided")
        self.finish_replacing()
        killpoint("rebuild.done")

    def finish_replacing(self) -> None:
        """Move a file named `.rebuilt` to its final path, if there is one."""
        rebuilt = self._beside(".rebuilt")
        if not rebuilt.exists():
            return
        with self.lock:
            # The new file must never be opened with the write-ahead log of the old one.
            for path in (*self._with_logs(self.path)[1:], self._mark):
                path.unlink(missing_ok=True)
            killpoint("rebuild.cleared")
            rebuilt.rename(self.path)
            _sync(self.path.parent)
            self.generation += 1
            self._noted = b""

    def note_backfill(self) -> None:
        """Record durably, before it happens, that pages of this write-ahead log are copied to the file."""
        salts = _read(self._wal, 0, _WAL_HEADER.size)[_SALTS] if self._wal.exists() else b""
        if not salts or salts == self._noted:
            return
        is_new = not self._mark.exists()
        fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, salts, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        if is_new:
            _sync(self.path.parent)
        self._noted = salts

    def forget_backfill(self) -> None:
        """Remove the mark once the write-ahead log is gone and the file has everything."""
        if not self._wal.exists():
            self._mark.unlink(missing_ok=True)
            self._noted = b""

    def check_log(self, connection: apsw.Connection) -> None:
        """Raise `DamagedFileError` if the write-ahead log lacks frames that may be partly in the file.

        Call it before anything is written.
        """
        try:
            header = _read(self._wal, 0, _WAL_HEADER.size)
            noted = _read(self._mark, 0, _SALTS.stop - _SALTS.start)
        except FileNotFoundError:
            return
        if len(header) < _WAL_HEADER.size:
            return
        if not _is_whole(header):
            raise DamagedFileError(f"the header of {self._wal.name} is damaged")
        if header[_SALTS] != noted:
            return
        accepted, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        own_salts = _WAL_HEADER.unpack(header)[4:6]
        before = _WAL_HEADER.unpack(header)[6:]
        for number, frame in enumerate(_frames(self._wal, header)):
            _, _, *salts, first, second = _WAL_FRAME.unpack_from(frame)
            are_own = tuple(salts) == own_salts
            # Other salts belong to an earlier use of the file, which was overwritten up to here.
            is_of_this = any(own == its for own, its in zip(own_salts, salts, strict=True))
            # Frames that are valid but not accepted belong to a transaction that was not committed.
            is_whole = number < accepted or (are_own and _checksum(header, before, frame) == (first, second))
            if is_of_this and not is_whole:
                raise DamagedFileError(f"{self._wal.name} is damaged from frame {number} on")
            before = first, second

    @property
    def _wal(self) -> Path:
        return self._beside("-wal")

    @property
    def _mark(self) -> Path:
        return self._beside(".backfill")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _with_logs(self, path: Path) -> tuple[Path, ...]:
        return tuple(path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal"))


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that the file is damaged, as opposed to a full disk or an invalid statement."""
    if isinstance(error, apsw.IOError):
        return getattr(error, "extendedresult", None) in _DAMAGE
    return isinstance(error, (DamagedFileError, apsw.CorruptError, apsw.NotADBError))


def check_sealed(connection: apsw.Connection) -> None:
    """Raise `DamagedFileError` if the connection did not compare what it read last with the checksums."""
    reserved = connection.reserve_bytes()
    if reserved != CHECKSUM_BYTES:
        raise DamagedFileError(f"the header of the tables' file says that pages have {reserved} bytes of checksum")


def judged(connection: apsw.Connection, error: Exception) -> Exception:
    """Return the error of a statement, or a `DamagedFileError` if the statement may have read the file without checksums."""
    try:
        check_sealed(connection)
    except DamagedFileError as damage:
        return damage
    return error


@contextmanager
def damage_named() -> Iterator[None]:
    """Raise `DamagedFileError` instead of SQLite's errors about a damaged file."""
    try:
        yield
    except apsw.Error as error:
        if not is_damage(error):
            raise
        raise DamagedFileError(f"a page of the tables' file is not what was written ({error})") from error


@cache
def checksum_vfs() -> str:
    """Load SQLite's checksum VFS into the process, and return its name."""
    connection = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(connection, "cksumvfs")
    except (apsw.sqlite_extra.NotAvailable, LookupError) as error:
        raise ConfigurationError(
            f"tables need SQLite's cksumvfs, which this installation of apsw lacks ({error}); install apsw with pip"
        ) from error
    finally:
        connection.close()
    return "cksmvfs"


def make_private_file(path: Path) -> None:
    """Create the file if it is missing. SQLite gives the files beside it the same permissions."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _is_whole(header: bytes) -> bool:
    """Return whether the header of a write-ahead log has the right checksum."""
    magic, *_, first, second = _WAL_HEADER.unpack(header)
    return magic in _WAL_MAGIC and _sums(header, (0, 0), header[: _WAL_HEADER.size - 8]) == (first, second)


def _checksum(header: bytes, before: Sequence[int], frame: bytes) -> tuple[int, int]:
    """Return the checksum of a frame that follows one with the checksum `before`."""
    return _sums(header, before, frame[:8] + frame[_WAL_FRAME.size :])


def _sums(header: bytes, before: Sequence[int], data: bytes) -> tuple[int, int]:
    """Return SQLite's checksum for a write-ahead log; its header has the byte order."""
    one, two = before
    words = iter_unpack(">2I" if header[3] & 1 else "<2I", data[: len(data) // 8 * 8])
    for first, second in words:
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _frames(wal: Path, header: bytes) -> Iterator[bytes]:
    """Yield all frames of the file; the last may be incomplete."""
    page_bytes = _WAL_HEADER.unpack(header)[2]
    fd = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = _WAL_HEADER.size
        while len(frame := os.pread(fd, _WAL_FRAME.size + page_bytes, at)) >= _WAL_FRAME.size:
            yield frame
            at += _WAL_FRAME.size + page_bytes
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    """Make the bytes of a file durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path, at: int, length: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, at)
    finally:
        os.close(fd)
