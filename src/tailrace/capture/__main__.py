"""`python -m tailrace.capture check|release`: what the server lets a process do for it with the database of a source.

The source is read from stdin as JSON, and the result, a list of checks, is written to stdout.
"""

import sys

import msgspec

from tailrace.capture.capture import release_source
from tailrace.capture.checks import check_source
from tailrace.capture.failures import CaptureError
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.source import Source


def main() -> None:
    source = msgspec.json.decode(sys.stdin.buffer.read(), type=Source)
    if sys.argv[1] == "check":
        checks = check_source(source)
    else:
        try:
            release_source(source)
            checks = [ConnectionCheck("release", "ok", f"the slot {source.slot!r} and the publication are dropped")]
        except CaptureError as error:
            checks = [ConnectionCheck("release", "failed", error.message, error.advice)]
    sys.stdout.buffer.write(msgspec.json.encode(checks))


if __name__ == "__main__":
    main()
