"""What makes a server a broken variant, by name. The server's process sees this; what it must show as is in `variants`."""

from collections.abc import Callable, Mapping

from chaos.broken import groups, log, transactions

PATCHES: Mapping[str, Callable[[], None]] = {
    "ack-before-sync": log.ack_before_sync,
    "lost-tail": log.lose_the_tail,
    "offset-reuse": log.reuse_offsets,
    "skipped-batch": log.skip_batches,
    "sequence-check-off": log.check_no_sequences,
    "commit-not-fenced": groups.fence_nobody,
    "offset-moved-back": groups.move_offsets_back,
    "aborted-served": transactions.serve_aborted,
    "torn-transaction": transactions.tear,
    "queue-ack-forgotten": groups.forget_acks,
    "table-behind-log": log.leave_rows_out,
}
