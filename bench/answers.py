"""What a child tells the one that asked it: a line of JSON on stdout. It may always say that it failed."""

import sys

import msgspec


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A record was lost, doubled, changed or out of order; or the work could not be done."""

    why: str


def say(answer: msgspec.Struct) -> None:
    line = memoryview(msgspec.json.encode(answer) + b"\n")
    while line:
        # Where PYTHONUNBUFFERED is set, a write takes as much as the pipe does.
        line = line[sys.stdout.buffer.write(line) :]
    sys.stdout.flush()
