"""How `tailrace serve` becomes its server: the process begins anew, with its flags and without the command line.

The libraries that read a command line take 10 MB, and a server would keep them for its whole life. So once the flags are
read the program is executed again, as it was called, under the same process id; they come along in the environment. Whoever
starts, stops or watches the server sees one process.
"""

import json
import os
import sys
from typing import NamedTuple, NoReturn

from tailrace.model.commit import Durability

_FLAGS = "TAILRACE_HANDED_OVER"


class Flags(NamedTuple):
    """What was said on the command line of `tailrace serve`; nothing is what was not said."""

    data: str | None
    http: str | None
    kafka: str | None
    advertise: str | None
    durability: Durability | None
    config: str | None
    allow_remote: bool
    accept_loss_after: int | None


def hand_over(flags: Flags) -> NoReturn:
    os.environ[_FLAGS] = json.dumps(flags)
    # The path and not its name: `python` may be found elsewhere, and a virtual environment is known by it.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  the same program, with its own words


def handed_over() -> Flags | None:
    """What was read before the process began anew. Processes that it starts begin at the beginning."""
    handed = os.environ.pop(_FLAGS, None)
    return None if handed is None else Flags(*json.loads(handed))
