"""What a child tells the one that asked it: a line of JSON on stdout."""

import sys

import msgspec


def say(answer: msgspec.Struct) -> None:
    line = memoryview(msgspec.json.encode(answer) + b"\n")
    while line:
        # Where PYTHONUNBUFFERED is set, a write takes as much as the pipe does.
        line = line[sys.stdout.buffer.write(line) :]
    sys.stdout.flush()
