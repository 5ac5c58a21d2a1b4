"""Payloads beside the log: one file for each content, named by its hash.

A file is written under another name, synced and renamed, and the folder is synced, before anybody can refer to it; so a name
always stands for the whole content. Who refers to a payload, and when it may go, is not known here.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.log.payload_files import UNFINISHED, payload_digests, payload_path
from tailrace.log.segment import sync_folder
from tailrace.log.writer import is_no_room
from tailrace.model.errors import LostPayloadError, StorageFailedError, StorageFullError
from tailrace.model.killpoint import killpoint
from tailrace.model.payload import PayloadReference, reference_to


class PayloadFolder:
    """May be called from any thread. `on_failure` is told of a disk that fails, as opposed to one that is full."""

    def __init__(self, folder: Path, check_room: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        self._folder = folder
        self._check_room = check_room
        self._on_failure = on_failure
        # One at a time: who finds a file must be able to take it for durable.
        self._lock = threading.Lock()
        self._exists = folder.exists()
        self._is_synced = not self._exists
        """Whether all names in the folder are durable. Those that a killed process left behind may not be."""
        for path in folder.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                path.unlink()

    def put(self, contents: Mapping[PayloadReference, bytes]) -> Sequence[PayloadReference]:
        self._check_room()
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
        """Whether the very bytes are there: a damaged file must not take in one more record, and is written anew."""
        try:
            return self._path(reference.digest).read_bytes() == content
        except OSError:
            return False

    def _write(self, contents: Mapping[PayloadReference, bytes]) -> None:
        if not self._exists:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._folder.parent)
            self._exists = True
        for reference, content in contents.items():
            path = self._path(reference.digest)
            unfinished = path.with_name(path.name + UNFINISHED)
            try:
                _write_synced(unfinished, content)
                self._is_synced = False
                unfinished.rename(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        killpoint("payload.written")
        self._sync()
        killpoint("payload.kept")

    def _sync(self) -> None:
        if not self._is_synced:
            sync_folder(self._folder)
            self._is_synced = True

    def _failure(self, error: OSError) -> StorageFullError | StorageFailedError:
        if is_no_room(error):
            return StorageFullError(
                f"the disk has no room for a payload ({error.strerror}); nothing was written. Free some space and send again"
            )
        self._on_failure(error)
        return StorageFailedError(f"a payload can't be written and the server stops: {error}. Check the disk, then start again")

    def _path(self, digest: bytes) -> Path:
        return payload_path(self._folder, digest)


class PayloadMemory:
    """The same without a disk."""

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


def _write_synced(path: Path, content: bytes) -> None:
    half = len(content) // 2
    with path.open("wb", buffering=0) as file:
        for part in (memoryview(content)[:half], memoryview(content)[half:]):
            while part:
                part = part[file.write(part) :]
            killpoint("payload.half")
        os.fsync(file.fileno())


def _checked(reference: PayloadReference, content: bytes) -> bytes:
    if reference_to(content) != reference:
        raise _lost(reference, "is damaged: its bytes do not have this hash")
    return content


def _lost(reference: PayloadReference, what: str) -> LostPayloadError:
    return LostPayloadError(f"the payload {reference.digest.hex()} of {reference.size} bytes {what}; see `tailrace fsck`")
