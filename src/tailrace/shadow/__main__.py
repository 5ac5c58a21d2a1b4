"""`python -m tailrace.shadow check`: what the server lets a process do for it with the Kafka of a shadow.

What is asked is read from stdin as JSON, and the result, a list of checks, is written to stdout.
"""

import asyncio
import sys

import msgspec

from tailrace.model.shadow import ShadowToCheck
from tailrace.shadow.checks import check_shadow


def main() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=ShadowToCheck)
    if asked.credentials is not None:
        asked.credentials.enter_environment()
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(check_shadow(asked))))


if __name__ == "__main__":
    main()
