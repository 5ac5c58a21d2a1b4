"""All broken variants: what is wrong with each, in which run that shows, and the rules of which one must notice."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from chaos.broken import groups, log, transactions
from chaos.profiles import Profile
from chaos.run_record import Mutant
from chaos.workloads.groups import Groups
from chaos.workloads.queue import Queue
from chaos.workloads.queues import Queues
from chaos.workloads.tables import Tables
from chaos.workloads.transactions import Transactions
from chaos.workloads.workload import Workload


class Variant(NamedTuple):
    put_in: Callable[[], None]
    """Change the classes of the server's process. Its docstring says what is wrong then."""
    shows_as: tuple[str, ...]
    workload: type[Workload]
    faults: tuple[str, ...]

    def mutant(self, name: str) -> Mutant:
        return Mutant(name, (self.put_in.__doc__ or "").strip(), self.shows_as)

    @property
    def profile(self) -> Profile:
        return Profile((self.workload,), self.faults, gap_seconds=1.5)


VARIANTS: Mapping[str, Variant] = {
    "ack-before-sync": Variant(log.ack_before_sync, ("lost-write", "unseen", "stale-end"), Queue, ("power",)),
    "lost-tail": Variant(log.lose_the_tail, ("lost-write", "unseen", "stale-end"), Queue, ("kill",)),
    "offset-reuse": Variant(log.reuse_offsets, ("inconsistent-offset", "lost-write", "stale-end"), Queue, ("kill",)),
    "skipped-batch": Variant(log.skip_batches, ("poll-skip",), Queue, ("pause",)),
    "sequence-check-off": Variant(log.check_no_sequences, ("duplicate",), Queue, ("slow-syncs", "cut")),
    "commit-not-fenced": Variant(groups.fence_nobody, ("fenced-commit",), Groups, ("pause",)),
    "offset-moved-back": Variant(groups.move_offsets_back, ("commit-lost", "committed-back"), Groups, ("kill",)),
    "aborted-served": Variant(transactions.serve_aborted, ("aborted-read",), Transactions, ("pause",)),
    "torn-transaction": Variant(transactions.tear, ("torn-transaction",), Transactions, ("kill",)),
    "queue-ack-forgotten": Variant(groups.forget_acks, ("redelivered", "acked-twice"), Queues, ("kill",)),
    "table-behind-log": Variant(log.leave_rows_out, ("stale-row", "rebuilt-table"), Tables, ("kill",)),
}
