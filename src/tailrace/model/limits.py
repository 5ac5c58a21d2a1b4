"""Every limit of the system, in one place. A request that exceeds one is rejected with an error that names it."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Each limit can be set in the configuration file under `[limits]`."""

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
    """Bytes above which a value is kept beside the log, once for each content. Values of Kafka producers never are."""
    pending_payload_bytes: int = 64 * MIB
    """Bytes of values beside the log that wait to be written."""
    key_bytes: int = 64 * KIB
    """Bytes of one record's key."""
    headers: int = 32
    """Headers of one record."""
    header_bytes: int = 4 * KIB
    """Bytes of one header's value."""
    batch_bytes: int = MIB + 64 * KIB
    """Bytes of one stored record batch, unless the topic sets `max_message_bytes`, which is at most `largest_batch_bytes`."""
    batch_records: int = 1_000_000
    """Records of one batch: as many as librdkafka can be set to send."""
    dedup_batch_records: int = 50_000
    """Records of one batch on a topic with deduplication, where each record is checked."""
    decompressed_batch_bytes: int = 16 * MIB
    """Bytes of one decompressed record batch."""
    check_threads: int = 2
    """Threads that decompress and check the batches of producers, and compress those of topics with a codec."""
    publish_records: int = 10_000
    """Records in one atomic publish."""
    frame_bytes: int = 64 * MIB
    """Bytes of one commit."""
    groups: int = 1_000
    group_members: int = 100
    group_name_length: int = 255
    group_state_bytes: int = 4 * MIB
    """Bytes of the metadata and assignments of the members of one group."""
    groups_state_bytes: int = 256 * MIB
    """Bytes of the metadata and assignments of all groups together."""
    group_consumer_session_timeout_ms: int = 45_000
    """How long a member of the consumer protocol may be silent. Kafka's `group.consumer.session.timeout.ms`."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    """How often such a member is told to send a heartbeat. Kafka's `group.consumer.heartbeat.interval.ms`."""
    topic_pattern_bytes: int = 1_000
    """Bytes of the regular expression of a Kafka client, with its counted repetitions written out."""
    rebalance_timeout_ms: int = 3_600_000
    """How long a rebalance waits for a member. Members that ask for more get this."""
    offset_metadata_bytes: int = 4 * KIB
    producers_per_partition: int = 10_000
    """Idempotent producers that are remembered for one partition. Above it the longest idle are forgotten early."""
    producer_idle_seconds: int = 7 * 24 * 3600
    """How long an idle producer is remembered."""
    publishers: int = 1_000
    """Publishers with numbered publishes that are remembered. Above it the longest idle are forgotten early."""
    publisher_idle_seconds: int = 24 * 3600
    """How long an idle publisher is remembered."""
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
    """The longest timeout of a transaction."""
    routes: int = 1_000
    """Routes of all tables together."""
    routes_per_table: int = 100
    routes_per_topic: int = 100
    dropped_routes: int = 10_000
    """Dropped routes that are remembered. Above it the oldest are forgotten. The topic of routes keeps them all."""
    route_expressions: int = 1_000
    """Operators, columns and constants in the condition and the partition expressions of one route."""
    route_sql_bytes: int = 256 * KIB
    """Bytes of the SQL that one route is compiled to."""
    explained_changes: int = 1_000
    """Changes that a dry run of a route reads, the newest ones."""
    explained_bytes: int = 64 * MIB
    """Bytes of the changes that a dry run reads. The oldest above it are left out."""
    message_id_bytes: int = 255
    """Bytes of a message id."""
    timestamp_ahead_ms: int = 3_600_000
    """How far in the future a record's timestamp may be."""
    dedup_entries: int = 1_000_000
    """Ids that are remembered for the deduplication of one topic. Above it the oldest are forgotten early, and counted."""
    dedup_window_seconds: int = 7 * 24 * 3600
    """The longest deduplication window of a topic."""
    compaction_key_bytes: int = 128 * MIB
    """Memory for the keys of compacted topics while they are compacted, 32 bytes a key. More keys take several rounds."""
    pending_commits: int = 100_000
    """Commits that wait for their sync."""
    pending_bytes: int = 64 * MIB
    """Bytes of commits that wait for their sync."""
    publish_wait_ms: int = 10_000
    """How long a publish waits for space before it fails with a retriable error."""
    waiting_publishes: int = 10_000
    """Publishes that wait for space at the same time."""
    waiting_publish_bytes: int = 64 * MIB
    """Bytes of publishes that wait for space."""
    answer_bytes: int = 8 * MIB
    """Decoded bytes of one answer to a reader. It holds at least one record, however large, and says if there are more."""
    answers_bytes: int = 96 * MIB
    """Decoded bytes of all answers together, from before they are decoded until they are sent or dropped. Others wait."""
    answer_wait_ms: int = 10_000
    """How long a reader waits for its share of `answers_bytes` before it gets a retriable error."""
    fetch_bytes: int = 16 * MIB
    pattern_topic_partitions: int = 64
    """Partitions of a pattern that a Kafka client reads as a topic, such as `orders.>@4`."""
    fetch_wait_ms: int = 30_000
    fetch_waiters: int = 10_000
    """Long polls that wait at the same time."""
    group_commit_bytes: int = 8 * MIB
    """Bytes written before one sync."""
    tail_cache_bytes: int = 64 * MIB
    """Bytes of the newest records that are kept in memory for 5 to 10 seconds, for readers at the end of the log."""
    open_segments: int = 128
    """Segment files that are kept open for reading."""
    read_threads: int = 2
    """Threads that read from disk."""
    queued_reads: int = 1_000
    """Reads that wait for one of the `read_threads`."""
    read_records: int = 10_000
    """Decoded records that one read returns."""
    subscribers: int = 2_000
    """Subscriptions to patterns at the same time."""
    subscription_tail_bytes: int = 16 * MIB
    """Memory for the newest records, shared by all subscribers. Subscribers further behind read the log."""
    subscription_ahead_bytes: int = 16 * MIB
    """Memory for records that subscribers further behind have read ahead, of all of them together."""
    subscriber_stall_seconds: int = 30
    """How long a subscriber may read nothing of what it is sent before it is disconnected."""
    subscriber_silence_seconds: int = 15
    """How long nothing is sent to a subscriber before it gets a keep-alive."""
    queue_groups: int = 1_000
    """Queues: groups of consumers that share records."""
    queue_shares: int = 5_000
    """Partitions of all queues together."""
    queue_in_flight: int = 2_000
    """Records of one partition that one queue has delivered and that are not done."""
    queue_group_in_flight: int = 50_000
    """Records that one queue has delivered in all partitions and that are not done."""
    queues_in_flight: int = 500_000
    """Records that all queues have delivered and that are not done."""
    queue_receipts: int = 1_000_000
    """Deliveries whose outcome is remembered, so that a receipt that is sent again gets the same answer."""
    queue_batch: int = 1_000
    """Records of one receive, and receipts of one request."""
    queue_waiters: int = 10_000
    """Consumers that wait for a record at the same time."""
    queue_hold_ms: int = 12 * 3_600_000
    """The longest visibility timeout, and the longest delay."""
    queue_deliveries: int = 100
    """The largest `max_deliveries`."""
    redriven_ranges: int = 10_000
    """Ranges of redriven offsets in one partition of dead letters."""
    min_free_bytes: int = 64 * MIB
    """Free disk space below which nothing new is accepted."""
    request_bytes: int = 16 * MIB
    """Bytes of one HTTP body or Kafka request."""
    unauthenticated_request_bytes: int = 64 * KIB
    """Bytes of one Kafka request of a client that has not authenticated yet, and of one message of SASL."""
    request_head_bytes: int = 64 * KIB
    """Bytes of an HTTP request before its body: its target and its headers."""
    connections: int = 4_000
    """Connections that one listener serves at the same time. Fewer if the system allows too few open files."""
    connections_per_address: int = 800
    """Kafka connections from one address, so that one machine can't take all of them."""
    new_connections_per_second: int = 100
    """Kafka connections that one address may open in a second, after a burst of `connections_per_address`."""
    tls_handshake_seconds: int = 10
    """How long a client may take for the TLS handshake, from the opening of the connection."""
    pipelined_requests: int = 64
    """Requests of one Kafka connection that are in progress or wait. Above it nothing is read from the client."""
    pipelined_bytes: int = 32 * MIB
    """Bytes of the pipelined requests of one Kafka connection."""
    held_request_bytes: int = 256 * MIB
    """Bytes of the requests of all Kafka connections together. Above it new requests are not read."""
    request_items: int = 50_000
    """Elements of all arrays of one Kafka request, without batches of records."""
    request_seconds: int = 30
    """How long a client may take to send one Kafka request, and to begin the first one."""
    unsent_bytes: int = MIB
    """Bytes of answers that a Kafka client has not read. Above it no more of its requests are processed."""
    unsent_seconds: int = 30
    """How long a Kafka client may leave `unsent_bytes`, or an HTTP client its answer, unread before it is disconnected."""
    fetch_sessions: int = 1_000
    """Fetch sessions of Kafka consumers. Above it consumers name all their partitions in every request."""
    fetch_session_partitions: int = 100_000
    """Partitions of all fetch sessions together."""
    telemetry_bytes: int = 256 * KIB
    """Bytes of the metrics that a Kafka client pushes at a time, compressed and decompressed."""
    telemetry_clients: int = 4_000
    """Kafka clients whose metrics are known. Above it the longest silent are forgotten."""
    client_metrics: int = 10_000
    """Metrics of Kafka clients that are kept, of all clients together. Others are dropped and counted."""
    pipelines: int = 1_000
    pipeline_name_length: int = 200
    """Bytes of a pipeline's name."""
    pipeline_marks: int = 10_000
    """Sources of one pipeline."""
    writers: int = 10_000
    """Spark jobs and queries with writes to topics that are remembered. Above it the longest idle are forgotten early."""
    writer_seconds: int = 30 * 24 * 3600
    """How long an idle job or query is remembered, so that a batch that it repeats is not written again."""
    staged_writes: int = 4
    """Batches of Spark jobs and queries that are published at the same time. Others wait."""
    pipeline_lease_seconds: int = 10
    """How long a pipeline may be silent before another process may take it over."""
    staged_bytes: int = 8 * 1024 * MIB
    """Bytes that pipelines have staged and not published."""
    staged_seconds: int = 3600
    """How long staged bytes are kept."""
    sources: int = 100
    source_tables: int = 10_000
    """Tables of one source."""
    source_silence_seconds: int = 15
    """How long the capture of a source may be silent before it counts as stopped."""
    shadows: int = 20
    shadow_patterns: int = 100
    """Patterns of topics, and of groups, of one shadow."""
    shadow_silence_seconds: int = 15
    """How long the process that copies a shadow may be silent before it counts as stopped."""
    shadow_fence_silence_seconds: int = 30
    """How long a command that cuts over may be silent before topics take records again."""
    shadow_fence_seconds: int = 600
    """How long topics take no records while they are cut over. Then the cut-over is given up."""
    shadow_retention_bytes: int = 10 * 1024 * MIB
    """Bytes of all topics together that retention leaves, beyond the limits of the topics, until shadows have copied them."""
    shadow_retention_seconds: int = 7 * 24 * 3600
    """How long retention by time, and the removal of tombstones, wait for shadows, beyond the time of the topic."""
    snapshot_chunk_bytes: int = 32 * MIB
    """Bytes of a table that one task reads at a time."""
    snapshot_claim_seconds: int = 120
    """How long a task may read a chunk before another one does."""
    table_columns: int = 500
    """Columns of one table."""
    table_versions: int = 1_000
    """Versions of the schema of one table: one more for each ALTER TABLE."""
    views: int = 1_000
    view_bytes: int = 64 * KIB
    """Bytes of the text of one view."""
    view_uses: int = 200
    """Views that one query reads, with those that they read, once for each place."""
    copy_rows: int = 100_000
    """Rows of one request of COPY."""
    change_bytes: int = 4 * MIB
    """Bytes of one change of a table as an event, with the row before and after."""
    snapshot_rows: int = 1_000
    """Rows that a snapshot or a checkpoint of a table reads at a time. Writes to tables wait for those of a snapshot."""
    snapshot_bytes: int = MIB
    """Bytes of these rows. The last row may exceed it."""
    table_checkpoint_seconds: int = 24 * 3600
    """How long changes that retention would delete wait for a checkpoint of a table that is larger than they are."""
    queued_writes: int = 10_000
    """Requests that wait to write to tables."""
    queued_write_bytes: int = 128 * MIB
    """Bytes of the statements and parameters of these requests."""
    write_turn_ms: int = 500
    """How long a transaction may write to tables while others wait. Then it is interrupted, and rejected the third time."""
    query_seconds: int = 30
    """How long one SQL statement may run. For a streamed answer, the time from one part to the next."""
    query_rows: int = 100_000
    """Rows of one query's answer in JSON. Further rows are left out, and the answer says so."""
    streamed_answers: int = 4
    """Streamed answers (Arrow, CSV, JSON lines) at the same time."""
    streamed_seconds: int = 3600
    """How long a streamed answer may take in all, with the time that its client needs to read it."""
    query_bytes: int = 256 * MIB
    """Memory that one query may take."""
    columnar_bytes: int = 4096 * MIB
    """Bytes of the columnar copies of tables on disk. The copies that were not used for longest go. 0 means no copies."""
    columnar_keys: int = 200_000
    """Keys of changed rows that are remembered for the columnar copies of all tables; long ones count several times."""
    query_answer_bytes: int = 48 * MIB
    """Bytes of one query's answer."""
    query_threads: int = 2
    """Queries that run at the same time: this many short ones, and as many long ones."""
    queued_queries: int = 1_000
    """Queries that wait for one of the `query_threads`."""
    statement_bytes: int = 128 * KIB
    """Bytes of the SQL text of one request. The rows of an INSERT of plain values are not counted."""
    query_nodes: int = 20_000
    """Names, constants and operators of a query or write, without the plain values of an INSERT, and values within the
    parameters of a query."""
    parse_seconds: int = 5
    """Processor seconds that it may take to parse a long SQL text."""
    queued_texts: int = 100
    """Long SQL texts that wait to be parsed."""
    statements: int = 1_000
    """Statements of one SQL text."""
    users: int = 10_000
    """Users and roles."""
    user_name_length: int = 255
    """Bytes of the name of a user or role."""
    user_roles: int = 100
    """Roles that one user or role is a member of."""
    password_bytes: int = 1_024
    """Bytes of a password."""
    tokens: int = 10_000
    """Tokens of all users together."""
    grants: int = 100_000
    """Grants, which are also the ACLs of Kafka's clients."""
    sessions: int = 10_000
    """Logins of browsers, by cookie. Above it the oldest end."""
    sessions_of_user: int = 20
    """Logins of browsers of one user. Above it the oldest ends."""
    session_seconds: int = 12 * 3600
    """How long the login of a browser lasts."""
    quotas: int = 10_000
    """Users, clients, and pairs of both, that have quotas of their own."""
    audit_records: int = 10_000
    """Records of the audit that wait to be written. Above it denials are counted together, and logins wait."""
    bearer_token_bytes: int = 16 * KIB
    """Bytes of a token of an OIDC issuer."""
    parsed_texts: int = 1_000
    """Parsed SQL texts that are cached, each of up to 4 KiB."""
    idle_connection_seconds: int = 600
    """How long a Kafka connection may be silent."""

    @property
    def largest_batch_bytes(self) -> int:
        """The largest `max_message_bytes` of a topic. A larger batch does not fit into a request or commit."""
        return min(self.request_bytes, self.frame_bytes)


DEFAULT_LIMITS = Limits()
