"""Payloads beside the log: one file for each content, named by its hash.

A file is written under another name and renamed, then it and the folder are synced, before any record can refer to it. Until
then a power cut may leave anything under the name. So a file that exists already is compared with the new content, and synced,
before it is used. Which records refer to a payload, and when it may be removed, is not known here.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from itertools import islice
from pathlib import Path

from tailrace.log.active_segment import TOO_MANY_FILES, is_storage_full
from tailrace.log.data_folder import UNFINISHED, payload_digests, payload_path, private_opener
from tailrace.log.segment import sync_folder
from tailrace.model.errors import LostPayloadError, OverloadedError, StorageFailedError, StorageFullError, TailraceError
from tailrace.model.killpoint import killpoint
from tailrace.model.record import PayloadReference, reference_to

_FILES_AT_ONCE = 64


class PayloadFolder:
    """May be called from any thread. `on_failure` is called if the disk fails, not if it is full."""

    def __init__(self, folder: Path, check_space: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        self._folder = folder
        self._check_space = check_space
        self._on_failure = on_failure
        # Held while files are written: a caller that finds a file relies on its being durable.
        self._lock = threading.Lock()
        self._exists = folder.exists()
        self._is_synced = not self._exists
        """Whether all names in the folder are durable. Those of a killed process may not be."""
        for path in folder.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                path.unlink()

    def put(self, contents: Mapping[PayloadReference, bytes]) -> Sequence[PayloadReference]:
        self._check_space()
        with self._lock:
            try:
                self._sync()
                missing = {reference: content for reference, content in contents.items() if not self._holds(reference, content)}
                if missing:
                    self._write(missing)
            except OSError as error:
                raise self._failure(error) from error
            return list(missing)

    def get(self, reference: PayloadReference) -> bytes:
        path = self._path(reference.digest)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise _lost(reference, "is missing") from None
        except OSError as error:
            raise _lost(reference, f"can't be read ({error.strerror})") from error
        return _checked(reference, content)

    def remove(self, digests: Iterable[bytes]) -> int:
        removed = 0
        with self._lock:
            for digest in digests:
                try:
                    self._path(digest).unlink()
                except FileNotFoundError:
                    continue
                killpoint("payload.removed")
                removed += 1
        return removed

    def digests(self) -> Iterator[bytes]:
        return payload_digests(self._folder)

    def _holds(self, reference: PayloadReference, content: bytes) -> bool:
        """Return whether the content is stored, durably. A damaged file does not count, so that it is written again."""
        try:
            with self._path(reference.digest).open("rb", buffering=0) as file:
                if file.readall() != content:
                    return False
                os.fsync(file.fileno())
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    def _write(self, contents: Mapping[PayloadReference, bytes]) -> None:
        if not self._exists:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder.parent)
            self._exists = True
        self._is_synced = False
        left = ((self._path(reference.digest), content) for reference, content in contents.items())
        while some := list(islice(left, _FILES_AT_ONCE)):
            with ExitStack() as files:
                # All are renamed before the first is synced, so that the file system needs one transaction for them.
                written = [(path, self._write_one(files, path, content)) for path, content in some]
                killpoint("payload.written")
                for path, file in written:
                    _sync_or_remove(path, file)
        self._sync()
        killpoint("payload.kept")

    def _write_one(self, files: ExitStack, path: Path, content: bytes) -> FileIO:
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            file = files.enter_context(FileIO(unfinished, "wb", opener=private_opener))
            _write_all(file, content)
            unfinished.rename(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return file

    def _sync(self) -> None:
        if not self._is_synced:
            sync_folder(self._folder)
            self._is_synced = True

    def _failure(self, error: OSError) -> TailraceError:
        if error.errno in TOO_MANY_FILES:
            return OverloadedError(f"a payload can't be written now ({error.strerror}); try again shortly")
        if is_storage_full(error):
            return StorageFullError(
                f"the disk is too full for a payload ({error.strerror}); nothing was written. Free some space and send again"
            )
        self._on_failure(error)
        return StorageFailedError(f"a payload can't be written and the server stops: {error}. Check the disk, then start again")

    def _path(self, digest: bytes) -> Path:
        return payload_path(self._folder, digest)


class PayloadMemory:
    """Payloads in memory, for `MemoryStore`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contents: dict[bytes, bytes] = {}

    def put(self, contents: Mapping[PayloadReference, bytes]) -> Sequence[PayloadReference]:
        with self._lock:
            missing = [reference for reference, content in contents.items() if self._contents.get(reference.digest) != content]
            self._contents.update((reference.digest, contents[reference]) for reference in missing)
            return missing

    def get(self, reference: PayloadReference) -> bytes:
        content = self._contents.get(reference.digest)
        if content is None:
            raise _lost(reference, "is missing")
        return _checked(reference, content)

    def remove(self, digests: Iterable[bytes]) -> int:
        with self._lock:
            return sum(self._contents.pop(digest, None) is not None for digest in digests)

    def digests(self) -> Iterator[bytes]:
        with self._lock:
            return iter(list(self._contents))


def _write_all(file: FileIO, content: bytes) -> None:
    half = len(content) // 2
    for part in (memoryview(content)[:half], memoryview(content)[half:]):
        while part:
            part = part[file.write(part) :]
        killpoint("payload.half")


def _sync_or_remove(path: Path, file: FileIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError:
        # The file looks complete but a power cut may lose it, so it must not be found again.
        path.unlink(missing_ok=True)
        raise


def _checked(reference: PayloadReference, content: bytes) -> bytes:
    if reference_to(content) != reference:
        raise _lost(reference, "is damaged: its content does not have this hash")
    return content


def _lost(reference: PayloadReference, what: str) -> LostPayloadError:
    return LostPayloadError(f"the payload {reference.digest.hex()} of {reference.size} bytes {what}; see `tailrace fsck`")
