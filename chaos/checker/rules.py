"""All rules by which a history is judged. Names follow the Kafka checker of Jepsen where it has one for the same thing."""

from collections.abc import Callable

from chaos.checker import changes, contents, groups, order, queues, server_health, surfaces, tables, transactions
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Rule
from chaos.history import (
    BoundsCall,
    Call,
    ChangeCall,
    CommitCall,
    CommittedCall,
    CopyInspection,
    DeclaredTopic,
    FsckInspection,
    HistoryLine,
    OwnedCall,
    PollCall,
    ReplayInspection,
    ResourceSample,
    RowsCall,
    RunPhase,
    SendCall,
    ServerStopped,
    SettleCall,
    TakeCall,
    TransactionCall,
)


def _calls(*kinds: type[Call]) -> Callable[[Timeline], int]:
    return lambda timeline: sum(len(timeline.of(kind)) for kind in kinds)


def _lines(kind: type[HistoryLine]) -> Callable[[Timeline], int]:
    return lambda timeline: len(timeline.others(kind))


def _routed_topics(timeline: Timeline) -> int:
    return sum(line.routed for line in timeline.others(DeclaredTopic))


def _replayed_transactions(timeline: Timeline) -> int:
    return sum(line.transactions for line in timeline.others(ReplayInspection))


def _copied_records(timeline: Timeline) -> int:
    return sum(line.records for line in timeline.others(CopyInspection))


def _heals(timeline: Timeline) -> int:
    return sum(line.name == "heal" for line in timeline.others(RunPhase))


def _all_calls(timeline: Timeline) -> int:
    return len(timeline.ops)


_SENT = _calls(SendCall, TransactionCall)
_READ = _calls(PollCall, TakeCall)
_BOUNDS = _calls(BoundsCall)
_OFFSETS = _calls(BoundsCall, SendCall, TransactionCall)
_OWNED = _calls(OwnedCall)
_COMMITS = _calls(CommitCall)
_COMMITTED = _calls(CommittedCall)
_TRANSACTIONS = _calls(TransactionCall)
_CHANGES = _calls(ChangeCall)
_ROWS = _calls(RowsCall)
_TAKES = _calls(TakeCall)
_SETTLED = _calls(SettleCall)
_SAMPLES = _lines(ResourceSample)
_STOPS = _lines(ServerStopped)
_INSPECTIONS = _lines(FsckInspection)

RULES = (
    Rule("lost-write", "I1", "an acked record, and one that was read, stays", contents.lost_write, _SENT),
    Rule("unseen", "I2", "final reads come to every acked record", contents.unseen, _SENT),
    Rule("inconsistent-offset", "I3", "an offset names one record for ever", contents.inconsistent_offset, _SENT),
    Rule("duplicate", "I4", "an idempotent producer's record is stored once", contents.duplicate, _SENT),
    Rule("aborted-read", "I5", "what was refused or aborted is never read", contents.aborted_read, _SENT),
    Rule("never-sent", "I5", "nothing is read that nobody sent", contents.never_sent, _READ),
    Rule("nonmonotonic-send", "I6", "a worker's later sends get higher offsets", order.nonmonotonic_send, _SENT),
    Rule("int-nonmonotonic-send", "I6", "later records of one send get higher offsets", order.int_nonmonotonic_send, _SENT),
    Rule("poll-skip", "I7", "a reader passes no visible record", order.poll_skip, _READ),
    Rule("nonmonotonic-poll", "I7", "a reader never steps back", order.nonmonotonic_poll, _READ),
    Rule("int-nonmonotonic-poll", "I7", "a reader never steps back within one answer", order.int_nonmonotonic_poll, _READ),
    Rule("stale-end", "I8", "the end of a partition never falls", order.stale_end, _OFFSETS),
    Rule("two-owners", "I9", "a partition has one owner in a generation", groups.two_owners, _OWNED),
    Rule("fenced-commit", "I9", "a member of an old generation can't commit", groups.fenced_commit, _COMMITS),
    Rule("commit-lost", "I9", "a committed offset is kept", groups.commit_lost, _COMMITTED),
    Rule("committed-back", "I9", "a committed offset does not fall by itself", groups.committed_back, _COMMITTED),
    Rule("commit-back", "I9", "only a reset moves a committed offset back", groups.commit_back, _COMMITS),
    Rule("torn-transaction", "I10", "all of a transaction is seen, or nothing", transactions.torn_transaction, _TRANSACTIONS),
    Rule(
        "torn-offsets", "I10", "its offsets and its records become visible together", transactions.torn_offsets, _TRANSACTIONS
    ),
    Rule(
        "processed-twice",
        "I10",
        "a record is the input of one committed transaction of a group",
        transactions.processed_twice,
        _TRANSACTIONS,
    ),
    Rule("g1c", "I10", "committed transactions don't read each other in a circle", transactions.g1c, _TRANSACTIONS),
    Rule("falling-start", "I11", "the start of a partition only rises", order.falling_start, _BOUNDS),
    Rule("start-above-end", "I11", "the start of a partition never lies above its end", order.start_above_end, _BOUNDS),
    Rule("kept-record-gone", "I11", "nothing leaves a topic without retention", order.kept_record_gone, _BOUNDS),
    Rule("silent-jump", "I11", "a reader below the start is told", order.silent_jump, _READ),
    Rule("surfaces-disagree", "I12", "all surfaces show the same record at a location", surfaces.surfaces_disagree, _READ),
    Rule("cursor-order", "I12", "a cursor names one record; cursors rise with offsets", surfaces.cursor_order, _READ),
    Rule("hidden-on-surface", "I12", "all surfaces show all records", surfaces.hidden_on_surface, _READ),
    Rule("stale-row", "I14", "a table holds the last of its acked changes", tables.stale_row, _ROWS),
    Rule("failed-change", "I14", "a refused change is nowhere", tables.failed_change, _CHANGES),
    Rule("rebuilt-table", "I14", "a table is what its change topic says", tables.rebuilt_table, _ROWS),
    Rule("lost-change", "I14", "every acked change is in its topics", changes.lost_change, _CHANGES),
    Rule("duplicate-change", "I14", "a change is in a topic once", changes.duplicate_change, _CHANGES),
    Rule("made-up-change", "I14", "a topic has no change that nobody asked for", changes.made_up_change, _CHANGES),
    Rule("change-order", "I14", "changes of a key come in their order", changes.change_order, _CHANGES),
    Rule("torn-change", "I14", "all changes of a transaction are there, or none", changes.torn_change, _CHANGES),
    Rule(
        "routed-otherwise",
        "I15",
        "a routed topic holds the changes that the table's own topic holds",
        changes.routed_otherwise,
        _routed_topics,
    ),
    Rule(
        "replayed-otherwise",
        "I14",
        "replayed events of a captured database are its tables, at every transaction boundary",
        changes.replayed_otherwise,
        _replayed_transactions,
    ),
    Rule(
        "copied-otherwise",
        "I19",
        "a copy has each record once, in its place, and groups go on there where they were",
        contents.copied_otherwise,
        _copied_records,
    ),
    Rule("leak", "I16", "memory, files and threads come back near to their base", server_health.leak, _SAMPLES),
    Rule("unavailable", "I17", "something succeeds in any 10 s without a fault", server_health.unavailable, _all_calls),
    Rule("slow-recovery", "I17", "each surface is back 30 s after the faults", server_health.slow_recovery, _heals),
    Rule("slow-stop", "I17", "a stop takes at most 10 s", server_health.slow_stop, _STOPS),
    Rule("fsck-finding", "I18", "the files are sound after each crash", server_health.fsck_finding, _INSPECTIONS),
    Rule("damage-not-found", "I18", "damage is found", server_health.damage_not_found, _INSPECTIONS),
    Rule("redelivered", "queue", "an acked record does not come back", queues.redelivered, _TAKES),
    Rule("acked-twice", "queue", "a record is acked once", queues.acked_twice, _SETTLED),
    Rule("unsettled", "queue", "a record that was handed out is acked, or becomes a dead letter", queues.unsettled, _TAKES),
    Rule("undelivered", "queue", "every record is handed out", queues.undelivered, _TAKES),
)
