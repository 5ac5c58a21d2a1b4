"""Every bound of the system, in one place. What is over a bound is refused with an error that names it."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults follow the documents that the product unites; each can be set in the configuration file under `[limits]`."""

    topic_segments: int = 16
    """Parts of a topic's name between dots."""
    topic_name_length: int = 249
    """Characters of a topic's name, as in Kafka."""
    topics: int = 1_000
    partitions: int = 10_000
    """Partitions of all topics together."""
    payload_bytes: int = MIB
    """Bytes of one record's value."""
    payload_inline_bytes: int = 100 * KIB
    """Bytes of a value above which it is kept beside the log, once for each content. Values of Kafka producers never are."""
    pending_payload_bytes: int = 64 * MIB
    """Bytes of such values that wait to be written."""
    key_bytes: int = 64 * KIB
    """Bytes of one record's key."""
    headers: int = 32
    """Headers of one record."""
    header_bytes: int = 4 * KIB
    """Bytes of one header's value."""
    batch_bytes: int = MIB + 64 * KIB
    """Bytes of one record batch as stored, on topics that say nothing else. They may say up to `largest_batch_bytes`."""
    batch_records: int = 1_000_000
    """Records of one batch, as many as librdkafka can be told to send."""
    dedup_batch_records: int = 50_000
    """Records of one batch on a topic that finds duplicates: there each is looked at."""
    decompressed_batch_bytes: int = 16 * MIB
    """Bytes of one record batch without its compression."""
    check_threads: int = 2
    """Threads that decompress batches of producers and look at their records."""
    publish_records: int = 10_000
    """Records in one atomic publish."""
    frame_bytes: int = 64 * MIB
    """Bytes of one commit."""
    groups: int = 1_000
    group_members: int = 100
    group_name_length: int = 255
    group_state_bytes: int = 4 * MIB
    """What the members of one group say and are assigned."""
    groups_state_bytes: int = 256 * MIB
    """The same for all groups together."""
    rebalance_timeout_ms: int = 3_600_000
    """How long a rebalance waits for a member; members that ask for more get this."""
    offset_metadata_bytes: int = 4 * KIB
    producers_per_partition: int = 10_000
    """Idempotent producers remembered for one partition; beyond it the longest silent are forgotten early."""
    producer_idle_seconds: int = 7 * 24 * 3600
    """How long a silent producer is remembered."""
    publishers: int = 1_000
    """Publishers that number their publishes and are remembered; beyond it the longest silent are forgotten early."""
    publisher_idle_seconds: int = 24 * 3600
    """How long a silent one is remembered."""
    publisher_name_length: int = 255
    """Bytes of a publisher's name."""
    transactional_ids: int = 10_000
    """Transactional ids that are remembered."""
    transactional_id_length: int = 255
    """Bytes of a transactional id."""
    transactional_id_idle_seconds: int = 7 * 24 * 3600
    """How long a transactional id without an open transaction is remembered."""
    open_transactions: int = 1_000
    transaction_partitions: int = 1_000
    """Partitions and offsets of one transaction together."""
    transaction_timeout_ms: int = 900_000
    """The longest time-out that a transaction can have."""
    routes: int = 1_000
    """Routes of all tables together."""
    routes_per_table: int = 100
    routes_per_topic: int = 100
    dropped_routes: int = 10_000
    """Dropped routes that are still known; beyond it the oldest are forgotten. The topic of routes keeps them all."""
    route_expressions: int = 1_000
    """Operators, columns and constants in the condition and the partition expressions of one route."""
    route_sql_bytes: int = 256 * KIB
    """Bytes of the SQL that these are compiled to."""
    explained_changes: int = 1_000
    """Changes that a dry run of a route looks at, the newest ones."""
    explained_bytes: int = 64 * MIB
    """Bytes of these changes; the oldest beyond it are left out."""
    message_id_bytes: int = 255
    """Bytes of a message id."""
    timestamp_ahead_ms: int = 3_600_000
    """How far in the future a record's timestamp may lie."""
    dedup_entries: int = 1_000_000
    """Remembered ids of one topic; beyond it the oldest are forgotten early, and counted."""
    dedup_window_seconds: int = 7 * 24 * 3600
    """The longest window that a topic can have for finding duplicates."""
    pending_commits: int = 100_000
    """Commits that wait for their sync."""
    pending_bytes: int = 64 * MIB
    """Bytes of commits that wait for their sync."""
    publish_wait_ms: int = 10_000
    """How long a publisher waits for room before it is told to come again."""
    waiting_publishes: int = 10_000
    """Publishes that wait for room at the same time."""
    waiting_publish_bytes: int = 64 * MIB
    """Bytes of publishes that wait for room."""
    answer_bytes: int = 8 * MIB
    """Decoded bytes of one answer to a reader. One record is always in it, however large, and it says that there is more."""
    answers_bytes: int = 96 * MIB
    """The same for all answers together, from before they are decoded until they are sent or dropped; others wait."""
    answer_wait_ms: int = 10_000
    """How long a reader waits for its part of that before it is told to come again."""
    fetch_bytes: int = 8 * MIB
    fetch_wait_ms: int = 30_000
    fetch_waiters: int = 10_000
    """Long polls that wait at the same time."""
    group_commit_bytes: int = 8 * MIB
    """Bytes written before one sync."""
    tail_cache_bytes: int = 64 * MIB
    """Newest record bytes kept in memory for readers at the tail, for 5 to 10 seconds."""
    open_segments: int = 128
    """Segment files held open for reading."""
    read_threads: int = 2
    """Threads that read from disk for readers far behind."""
    queued_reads: int = 1_000
    """Reads that wait for one of these threads."""
    read_records: int = 10_000
    """Decoded records handed out by one read."""
    subscribers: int = 2_000
    """Subscriptions to patterns at the same time."""
    subscription_tail_bytes: int = 16 * MIB
    """Memory for the newest records, kept for all subscribers together; those who are further behind read the log."""
    subscription_ahead_bytes: int = 16 * MIB
    """Memory for what subscribers far behind have read and not been sent yet, of all of them together."""
    subscriber_stall_seconds: int = 30
    """How long a subscriber may take nothing of what it is sent before it is cut off."""
    subscriber_silence_seconds: int = 15
    """How long a subscriber hears nothing before it gets a sign of life."""
    queue_groups: int = 1_000
    """Groups of consumers that share records."""
    queue_shares: int = 5_000
    """Partitions of all these groups together."""
    queue_in_flight: int = 2_000
    """Records of one partition that one such group has handed out and that are not done."""
    queue_group_in_flight: int = 50_000
    """The same over all partitions that one such group takes from."""
    queues_in_flight: int = 500_000
    """The same over all such groups."""
    queue_receipts: int = 1_000_000
    """Deliveries of which it is remembered what became of them, so that a receipt that is sent again is answered the same."""
    queue_batch: int = 1_000
    """Records of one receive, and receipts of one request."""
    queue_waiters: int = 10_000
    """Consumers that wait for a record at the same time."""
    queue_hold_ms: int = 12 * 3_600_000
    """The longest visibility time-out, and the longest delay."""
    queue_deliveries: int = 100
    """The largest `max_deliveries`."""
    redriven_ranges: int = 10_000
    """Gaps that a partition of dead letters may have between those that were put back."""
    min_free_bytes: int = 64 * MIB
    """Free disk below which nothing new is taken."""
    request_bytes: int = 16 * MIB
    """Bytes of one HTTP body or Kafka request."""
    request_head_bytes: int = 64 * KIB
    """Bytes of an HTTP request before its body: its address and its headers."""
    connections: int = 4_000
    """Connections that one listener serves at the same time; fewer where the system allows too few open files."""
    connections_per_address: int = 800
    """Kafka connections from one address, so that one machine can't take all."""
    new_connections_per_second: int = 100
    """Kafka connections that one address may open in a second, beyond `connections_per_address` at a stroke."""
    pipelined_requests: int = 64
    """Requests of one Kafka connection that are answered or wait for it; beyond it nothing is read from the client."""
    pipelined_bytes: int = 32 * MIB
    """Bytes of these requests."""
    held_request_bytes: int = 256 * MIB
    """Bytes of the requests of all Kafka connections together; beyond it new ones wait in the network."""
    request_items: int = 50_000
    """Elements of all arrays of one Kafka request, batches of records not counted."""
    request_seconds: int = 30
    """How long a client may take to send one Kafka request, and to begin with the first."""
    unsent_bytes: int = MIB
    """Bytes of answers that a Kafka client has not taken; beyond it nothing more is done for it."""
    unsent_seconds: int = 30
    """How long it may leave so many before its connection is closed; and an HTTP client all of what it was sent."""
    fetch_sessions: int = 1_000
    """Fetch sessions of Kafka consumers; beyond it consumers name all their partitions in every request."""
    fetch_session_partitions: int = 100_000
    """Partitions of all these sessions together."""
    pipelines: int = 1_000
    pipeline_name_length: int = 200
    """Bytes of a pipeline's name."""
    pipeline_marks: int = 10_000
    """Sources of one pipeline."""
    writers: int = 10_000
    """Spark jobs and queries that wrote to topics and are remembered; beyond it the longest silent are forgotten early."""
    writer_seconds: int = 30 * 24 * 3600
    """How long a silent one is remembered, and a batch that it repeats found to be there already."""
    staged_writes: int = 4
    """Batches of such jobs and queries that are published at the same time; others wait for their turn."""
    pipeline_lease_seconds: int = 10
    """How long a pipeline may be silent before another one may run in its place."""
    staged_bytes: int = 8 * 1024 * MIB
    """Bytes that pipelines have staged and not published."""
    staged_seconds: int = 3600
    """How long they are kept for that."""
    table_columns: int = 500
    """Columns of one table."""
    change_bytes: int = 4 * MIB
    """Bytes of one change of a table as an event, with the row before and after."""
    snapshot_rows: int = 1_000
    """Rows that a snapshot or a checkpoint of a table tells at a time; writers to tables wait for a snapshot's."""
    snapshot_bytes: int = MIB
    """Bytes of these rows; the last of them may go beyond."""
    table_checkpoint_seconds: int = 24 * 3600
    """How long changes that retention would take wait for a checkpoint of a table that is larger than they are."""
    queued_writes: int = 10_000
    """Requests that wait to write to tables."""
    queued_write_bytes: int = 128 * MIB
    """Bytes of their statements and parameters."""
    write_turn_ms: int = 500
    """How long a transaction may go on writing to tables while others wait; it is interrupted then, and refused at the third
    time."""
    query_seconds: int = 30
    """How long one statement of SQL may run; for an answer in parts, from one part to the next."""
    query_rows: int = 100_000
    """Rows that one query answers in JSON; more are cut off, and that is told."""
    streamed_answers: int = 4
    """Answers as Arrow, CSV or JSON by lines that are made at the same time, from tables, and as many from topics."""
    streamed_seconds: int = 3600
    """How long such an answer may take in all, with the time that its client needs to take it."""
    query_bytes: int = 256 * MIB
    """Memory that one query may take."""
    query_answer_bytes: int = 48 * MIB
    """Bytes of one query's answer."""
    joined_rows: int = 1_000_000
    """Rows of one table that a query may join with topics."""
    query_threads: int = 2
    """Queries that run at the same time: so many short ones of tables, as many long ones, and as many of topics."""
    queued_queries: int = 1_000
    """Queries that wait for one of these threads."""
    known_time_runs: int = 100_000
    """Runs of batches, of all topics, whose oldest time a query has found before the survey did."""
    statement_bytes: int = 128 * KIB
    """Bytes of the SQL text of one request. The rows of an INSERT of plain values are not counted."""
    statement_nodes: int = 1_000
    """Names, constants and operators of a statement that is not about tables alone. Others have as many as fit into a text."""
    parse_seconds: int = 5
    """Seconds of a processor's time that it may take to parse a long SQL text."""
    queued_texts: int = 100
    """Long SQL texts that wait to be parsed."""
    statements: int = 1_000
    """Statements of one SQL text."""
    parsed_texts: int = 1_000
    """SQL texts that are remembered with what they mean, each of up to 4 KiB."""
    idle_connection_seconds: int = 600
    """How long a Kafka connection may be silent."""

    @property
    def largest_batch_bytes(self) -> int:
        """What a topic may take as one batch: more than that fits into no request or commit."""
        return min(self.request_bytes, self.frame_bytes)


DEFAULT_LIMITS = Limits()
