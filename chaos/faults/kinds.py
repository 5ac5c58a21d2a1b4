"""All kinds of faults by name, and what each needs of the machine."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from chaos.faults import processes
from chaos.stage import Stage


class Kind(NamedTuple):
    """`cause` does it and takes it back. A `lasting` one leaves the server running and may go on beside others."""

    cause: Callable[[Stage, random.Random], None]
    lasting: bool = False
    why_not: Callable[[Stage], str | None] = lambda stage: None


KINDS: Mapping[str, Kind] = {
    "kill": Kind(processes.kill),
    "pause": Kind(processes.pause),
    "stop": Kind(processes.stop),
    "killpoint": Kind(processes.killpoint),
}


def possible(stage: Stage, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Those that can be caused here, and why the others can't."""
    reasons = {name: KINDS[name].why_not(stage) for name in names}
    return [name for name, reason in reasons.items() if reason is None], {k: v for k, v in reasons.items() if v is not None}
