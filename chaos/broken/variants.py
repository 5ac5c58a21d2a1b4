"""All broken variants: in which run each shows, and the rules of which one must notice."""

from collections.abc import Mapping
from typing import NamedTuple

from chaos.broken.patches import PATCHES
from chaos.profiles import Profile
from chaos.run_record import Mutant
from chaos.workloads.groups import Groups
from chaos.workloads.queue import Queue
from chaos.workloads.queues import Queues
from chaos.workloads.tables import Tables
from chaos.workloads.transactions import Transactions
from chaos.workloads.workload import Workload

GAP_SECONDS = 1.5


class Variant(NamedTuple):
    name: str
    shows_as: tuple[str, ...]
    workload: type[Workload]
    faults: tuple[str, ...]

    @property
    def mutant(self) -> Mutant:
        """What is wrong with it is the docstring of its patch."""
        return Mutant(self.name, (PATCHES[self.name].__doc__ or "").strip(), self.shows_as)

    @property
    def profile(self) -> Profile:
        return Profile((self.workload,), self.faults, gap_seconds=GAP_SECONDS)


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("ack-before-sync", ("lost-write", "unseen", "stale-end"), Queue, ("power",)),
        Variant("lost-tail", ("lost-write", "unseen", "stale-end"), Queue, ("kill",)),
        Variant("offset-reuse", ("inconsistent-offset", "lost-write", "stale-end"), Queue, ("kill",)),
        Variant("skipped-batch", ("poll-skip",), Queue, ("pause",)),
        Variant("sequence-check-off", ("duplicate",), Queue, ("slow-syncs", "cut")),
        Variant("commit-not-fenced", ("fenced-commit",), Groups, ("pause",)),
        Variant("offset-moved-back", ("commit-lost", "committed-back"), Groups, ("kill",)),
        Variant("aborted-served", ("aborted-read",), Transactions, ("pause",)),
        Variant("torn-transaction", ("torn-transaction",), Transactions, ("kill",)),
        Variant("queue-ack-forgotten", ("redelivered", "acked-twice"), Queues, ("kill",)),
        Variant("table-behind-log", ("stale-row", "rebuilt-table"), Tables, ("kill",)),
    )
}
