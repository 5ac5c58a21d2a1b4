"""Where payloads lie in the data folder: a file for each, named by the hash of its content in hexadecimal."""

import os
from collections.abc import Iterator
from pathlib import Path

from tailrace.model.payload import DIGEST_BYTES

PAYLOADS_FOLDER = "payloads"
UNFINISHED = ".unfinished"
"""At the end of the name of a file that is not whole yet."""


def payload_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()


def payload_digests(folder: Path) -> Iterator[bytes]:
    """What the files of a folder are named by; other files are passed over."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                digest = bytes.fromhex(entry.name)
            except ValueError:
                continue
            if len(digest) == DIGEST_BYTES:
                yield digest
