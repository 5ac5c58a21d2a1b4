"""The words of our SQL, for completion and colours. What may stand where is the server's business."""

# fmt: off
KEYWORDS = (
    "ACK", "ADD", "ALL", "ALTER", "AND", "AS", "ASC", "BEGIN", "BETWEEN", "BY", "CASCADE", "CASE", "CAST", "CLEAR",
    "COMMIT", "CONFLICT", "CONSUME", "CORRUPT", "CREATE", "CROSS", "DEAD", "DEFAULT", "DELETE", "DESC", "DESCRIBE", "DISTINCT",
    "DO", "DROP", "EARLIEST", "ELSE", "END", "EXCEPT", "EXISTS", "EXPLAIN", "FALSE", "FROM", "FULL", "GROUP", "GROUPS",
    "HAVING", "IF", "ILIKE", "IN", "INNER", "INSERT", "INTERSECT", "INTO", "IS", "JOIN", "KEY", "LATEST", "LEFT",
    "LETTERS", "LIKE", "LIMIT", "NEW", "NOT", "NOTHING", "NULL", "OF", "OFFSET", "OLD", "ON", "OR", "ORDER", "OUTER",
    "OVER", "PARTITION", "PARTITIONS", "PRIMARY", "QUALIFY", "RECURSIVE", "REDRIVE", "RETURNING", "RIGHT", "ROLLBACK",
    "ROUTES", "SELECT", "SET", "SHOW", "SKIP", "SOURCE", "START", "TABLE", "TABLES", "THEN", "TIMESTAMP", "TOPIC", "TOPICS",
    "TRANSACTION", "TRUE", "UNION", "UPDATE", "UPTO", "USING", "VALUES", "WAIT", "WHEN", "WHERE", "WINDOW", "WITH", "WORK"
)

TYPES = ("bigint", "boolean", "bytes", "date", "decimal", "double", "integer", "json", "smallint", "text", "timestamp", "uuid")

OPTIONS = (
    "alias", "dedup", "dedup_window_seconds", "max_message_bytes", "payload", "retention_max_bytes", "retention_seconds",
    "snapshot", "timestamps"
)

FUNCTIONS = ("avg", "coalesce", "count", "lower", "max", "min", "now", "round", "sum", "table_changes", "upper")

TOPIC_COLUMNS = ("partition", "offset", "cursor", "timestamp", "key", "value", "headers", "source_table", "op", "payload_mode")
# fmt: on

SYSTEM_TABLES = tuple(
    f"system.{name}"
    for name in ("groups", "partitions", "pipelines", "queues", "stats", "tables", "topic_offsets", "topic_routes", "topics")
)
