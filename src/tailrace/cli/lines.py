"""Lines of a file or a pipe, handed on in the portions in which they arrive.

Whoever writes slowly into a pipe is not kept waiting until a portion is full: when nothing more comes for a moment, what is
there is handed on.
"""

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.cli.failures import CommandError

_READ_BYTES = 256 * 1024
_PAUSE_SECONDS = 0.05
_LONGEST_LINE = 16 * 1024 * 1024


class Portion(NamedTuple):
    first_line: int
    """From 1."""
    lines: list[bytes]
    """Without their ends."""
    read_bytes: int
    """Of the whole input, up to here."""


def portions(descriptor: int, most_lines: int, most_bytes: int) -> Iterator[Portion]:
    """Lines in order, up to a number and a size; a single longer line is a portion of its own."""
    number, size, waiting, read = 1, 0, list[bytes](), 0
    for lines, read in _arriving(descriptor):
        if lines is None:
            if waiting:
                yield Portion(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            continue
        for line in lines:
            if waiting and (len(waiting) >= most_lines or size + len(line) > most_bytes):
                yield Portion(number, waiting, read)
                number, size, waiting = number + len(waiting), 0, []
            waiting.append(line)
            size += len(line)
    if waiting:
        yield Portion(number, waiting, read)


def _arriving(descriptor: int) -> Iterator[tuple[list[bytes] | None, int]]:
    """Whole lines, or `None` when nothing comes for a moment; each with how much was read."""
    begun: list[bytes] = []
    begun_bytes = read = 0
    is_idle = False
    while True:
        if not is_idle and not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
            is_idle = True
            yield None, read
        data = os.read(descriptor, _READ_BYTES)
        is_idle = False
        read += len(data)
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun, begun_bytes = [], 0
            yield [line.removesuffix(b"\r") for line in whole], read
        if rest:
            begun.append(rest)
            begun_bytes += len(rest)
        if begun_bytes > _LONGEST_LINE:
            raise CommandError(f"a line of the input is longer than {_LONGEST_LINE:,} bytes; no message is so large")
        if not data:
            if begun:
                yield [b"".join(begun).removesuffix(b"\r")], read
            return
