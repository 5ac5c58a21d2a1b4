"""Who may do what: the policy of every API of Kafka, every endpoint of HTTP and every statement of SQL, written by hand.

`test_policy.py` fails when one of them is not here, `test_matrix.py` tries each with each kind of principal on a real server,
and `tools/render_policy.py` makes `docs/reference/policy.md` of it.

The principals are those of a server with `authentication = "required"` and two tenants, whose topics, tables, groups, queues,
sources and transactional ids begin with `acme` and with `other`. Everything that is asked for belongs to `acme`:

- none: sends no credentials
- wrong: sends a wrong password
- reader: was granted to read what begins with `acme`
- stranger: was granted everything on what begins with `other`
- owner: was granted everything on what begins with `acme`, and nothing on the cluster
- administrator: is a member of the role `admin`
"""

from typing import NamedTuple

PRINCIPALS = ("none", "wrong", "reader", "stranger", "owner", "administrator")

ALL = "++++++"
"""Whoever reaches the server."""
OPEN = "+-++++"
"""Whoever reaches the server, but not with wrong credentials."""
USERS = "--++++"
"""Whoever has authenticated. What is listed is only what the user may see."""
READERS = "--+-++"
PUBLISHERS = "---+++"
"""Who may publish to some topic, whichever."""
OWNERS = "----++"
ADMINISTRATORS = "-----+"


class Rule(NamedTuple):
    allowed: str
    """A sign for each principal: `+` for allowed, `-` for refused."""
    needs: str
    """What must be granted, for people."""

    def allows(self, principal: str) -> bool:
        return self.allowed[PRINCIPALS.index(principal)] == "+"


class SqlRule(NamedTuple):
    statement: str
    """The class of the statement in `sql/statements.py`."""
    text: str
    """A statement of its kind."""
    allowed: str
    needs: str

    def allows(self, principal: str) -> bool:
        return self.allowed[PRINCIPALS.index(principal)] == "+"


NOTHING = "nothing"
LOGIN = "to be logged in"

KAFKA: dict[str, Rule] = {
    "ApiVersions": Rule(ALL, NOTHING),
    "SaslHandshake": Rule(ALL, NOTHING),
    "SaslAuthenticate": Rule(ALL, NOTHING),
    "Metadata": Rule(
        READERS, "`describe` on each topic; the list of all has those. `create` on the topic or the cluster to have it created"
    ),
    "DescribeTopicPartitions": Rule(READERS, "`describe` on the topic"),
    "DescribeCluster": Rule(USERS, LOGIN),
    "FindCoordinator": Rule(READERS, "`describe` on the group or the transactional id"),
    "Produce": Rule(OWNERS, "`publish` on the topic, and on the transactional id if there is one"),
    "InitProducerId": Rule(
        OWNERS,
        "`publish` on the transactional id; without one, `publish` on any topic or `idempotent_write` on the cluster",
    ),
    "Fetch": Rule(READERS, "`consume` on the topic; of a pattern, the topics with `consume` are delivered"),
    "ListOffsets": Rule(READERS, "`describe` on the topic"),
    "OffsetForLeaderEpoch": Rule(READERS, "`describe` on the topic"),
    "JoinGroup": Rule(READERS, "`consume` on the group"),
    "SyncGroup": Rule(READERS, "`consume` on the group"),
    "Heartbeat": Rule(READERS, "`consume` on the group"),
    "LeaveGroup": Rule(READERS, "`consume` on the group"),
    "ConsumerGroupHeartbeat": Rule(
        READERS, "`consume` on the group, and `describe` on topics that are named; an expression matches only such topics"
    ),
    "DescribeGroups": Rule(READERS, "`describe` on the group"),
    "ConsumerGroupDescribe": Rule(READERS, "`describe` on the group"),
    "ListGroups": Rule(USERS, "`describe` on each group that is listed"),
    "DeleteGroups": Rule(OWNERS, "`drop` on the group"),
    "OffsetCommit": Rule(READERS, "`consume` on the group and the topic"),
    "OffsetFetch": Rule(READERS, "`describe` on the group and the topic"),
    "OffsetDelete": Rule(OWNERS, "`drop` on the group, and `consume` on the topic"),
    "AddPartitionsToTxn": Rule(OWNERS, "`publish` on the transactional id and the topic"),
    "AddOffsetsToTxn": Rule(OWNERS, "`publish` on the transactional id, and `consume` on the group"),
    "TxnOffsetCommit": Rule(OWNERS, "`publish` on the transactional id, and `consume` on the group and the topic"),
    "EndTxn": Rule(OWNERS, "`publish` on the transactional id"),
    "DescribeTransactions": Rule(READERS, "`describe` on the transactional id"),
    "ListTransactions": Rule(USERS, "`describe` on each transactional id that is listed"),
    "DescribeProducers": Rule(READERS, "`consume` on the topic"),
    "CreateTopics": Rule(OWNERS, "`create` on the topic or on the cluster"),
    "CreatePartitions": Rule(OWNERS, "`alter` on the topic"),
    "DeleteTopics": Rule(OWNERS, "`drop` on the topic"),
    "DeleteRecords": Rule(OWNERS, "`drop` on the topic"),
    "DescribeLogDirs": Rule(ADMINISTRATORS, "`describe` on the cluster"),
    "DescribeConfigs": Rule(OWNERS, "`describe_configs` on the topic, the group or the cluster"),
    "AlterConfigs": Rule(OWNERS, "`alter_configs` on the topic, the group or the cluster"),
    "IncrementalAlterConfigs": Rule(OWNERS, "`alter_configs` on the topic, the group or the cluster"),
    "ListConfigResources": Rule(ADMINISTRATORS, "`describe_configs` on the cluster"),
    "ElectLeaders": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "AlterPartitionReassignments": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "ListPartitionReassignments": Rule(ADMINISTRATORS, "`describe` on the cluster"),
    "AlterReplicaLogDirs": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "UpdateFeatures": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "DescribeAcls": Rule(ADMINISTRATORS, "`describe` on the cluster"),
    "CreateAcls": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "DeleteAcls": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "DescribeUserScramCredentials": Rule(ADMINISTRATORS, "`describe` on the cluster"),
    "AlterUserScramCredentials": Rule(ADMINISTRATORS, "`alter` on the cluster"),
    "DescribeClientQuotas": Rule(ADMINISTRATORS, "`describe_configs` on the cluster"),
    "AlterClientQuotas": Rule(ADMINISTRATORS, "`alter_configs` on the cluster"),
    "GetTelemetrySubscriptions": Rule(USERS, LOGIN),
    "PushTelemetry": Rule(USERS, LOGIN),
}
"""By the name of the API."""

_PIPELINE = "`consume` on the group of the pipeline's name; `cluster_action` on the cluster for the router"
_WRITER = "of a name that nobody has leased, `publish` on any topic or `idempotent_write` on the cluster; else as for its lease"
_ROUTER = "`cluster_action` on the cluster"
_CAPTURE = "`alter` on the source, or `cluster_action` on the cluster"
_CAPTURED = f"{_CAPTURE}; `publish` on each topic that is not the source's own"
_CHUNK = "`alter` on the source that is named, or `cluster_action` on the cluster"
_SHADOW = "`alter` or `cluster_action` on the cluster"

HTTP: dict[str, Rule] = {
    "GET /health": Rule(OPEN, NOTHING),
    "POST /api/login": Rule(OPEN, "nothing; a wrong password is refused"),
    "POST /api/logout": Rule(USERS, LOGIN),
    "GET /api/whoami": Rule(USERS, LOGIN),
    "GET /": Rule(USERS, LOGIN),
    "GET /api/openapi.json": Rule(USERS, LOGIN),
    "GET /metrics": Rule(ADMINISTRATORS, "`describe` on the cluster"),
    "POST /api/sql": Rule(USERS, "what each statement needs"),
    "GET /api/subscribe": Rule(READERS, "`consume` on the topic; of a pattern, the topics with `consume` are delivered"),
    "WEBSOCKET /api/subscribe": Rule(READERS, "`consume` on the topic; of a pattern, the topics with `consume` are delivered"),
    "GET /api/topics": Rule(USERS, "`describe` on each topic that is listed"),
    "POST /api/topics": Rule(OWNERS, "`create` on the topic or on the cluster"),
    "GET /api/topics/{name}": Rule(READERS, "`describe` on the topic"),
    "PATCH /api/topics/{name}": Rule(OWNERS, "`alter` or `alter_configs` on the topic"),
    "DELETE /api/topics/{name}": Rule(OWNERS, "`drop` on the topic"),
    "GET /api/topics/{name}/partitions": Rule(READERS, "`describe` on the topic"),
    "POST /api/topics/publish": Rule(OWNERS, "`publish` on each topic"),
    "POST /api/topics/fetch": Rule(READERS, "`consume` on the topic"),
    "POST /api/topics/consume": Rule(READERS, "`consume` on the topic, and on the group if there is one"),
    "POST /api/topics/ack": Rule(READERS, "`consume` on the topic and the group"),
    "POST /api/topics/commit": Rule(READERS, "`consume` on the topic and the group"),
    "GET /api/groups": Rule(USERS, "`describe` on each group that is listed"),
    "GET /api/groups/{group_id}": Rule(READERS, "`describe` on the group"),
    "DELETE /api/groups/{group_id}": Rule(OWNERS, "`drop` on the group"),
    "GET /api/groups/{group_id}/offsets": Rule(READERS, "`describe` on the group, and on the topics that are listed"),
    "PUT /api/groups/{group_id}/offsets": Rule(READERS, "`consume` on the group and the topic"),
    "POST /api/groups/{group_id}/join": Rule(READERS, "`consume` on the group"),
    "POST /api/groups/{group_id}/sync": Rule(READERS, "`consume` on the group"),
    "POST /api/groups/{group_id}/heartbeat": Rule(READERS, "`consume` on the group"),
    "POST /api/groups/{group_id}/leave": Rule(READERS, "`consume` on the group"),
    "POST /api/groups/{group_id}/begin": Rule(READERS, "`consume` on the group and the topic"),
    "POST /api/groups/{group_id}/commit": Rule(READERS, "`consume` on the group and the topics"),
    "GET /api/queues": Rule(USERS, "`describe` on each queue that is listed"),
    "DELETE /api/queues/{group_id}": Rule(OWNERS, "`drop` on the queue"),
    "POST /api/queues/{group_id}/receive": Rule(
        READERS, "`consume` on the queue and the topic; of a pattern, the topics with `consume` are delivered"
    ),
    "POST /api/queues/{group_id}/ack": Rule(READERS, "`consume` on the queue"),
    "POST /api/queues/{group_id}/nack": Rule(READERS, "`consume` on the queue"),
    "POST /api/queues/{group_id}/extend": Rule(READERS, "`consume` on the queue"),
    "GET /api/tables": Rule(USERS, "`describe` on each table that is listed"),
    "GET /api/views": Rule(USERS, "`describe` on each view that is listed"),
    "POST /api/tables/{name}/rows": Rule(OWNERS, "`insert` on the table, and `update` to replace rows"),
    "GET /api/routes": Rule(USERS, "`describe` on the topic of each route that is listed"),
    "POST /api/routes": Rule(OWNERS, "`alter` and `publish` on the topic, and `select` on the table"),
    "DELETE /api/routes": Rule(OWNERS, "`alter` on the topic"),
    "GET /api/pipelines": Rule(USERS, "`describe` on the group of the name of each pipeline that is listed"),
    "POST /api/pipelines/{name}/lease": Rule(READERS, _PIPELINE),
    "POST /api/pipelines/{name}/release": Rule(READERS, _PIPELINE),
    "POST /api/pipelines/{name}/pin": Rule(READERS, _PIPELINE),
    "GET /api/pipelines/{name}/marks": Rule(READERS, "`describe` on the group of the pipeline's name"),
    "PUT /api/pipelines/{name}/stages/{stage}/{part}": Rule(
        PUBLISHERS, f"`publish` on each topic of what is staged; {_WRITER}"
    ),
    "POST /api/pipelines/{name}/publish": Rule(READERS, _PIPELINE),
    "POST /api/pipelines/{name}/write": Rule(PUBLISHERS, _WRITER),
    "POST /api/pipelines/{name}/discard": Rule(PUBLISHERS, _WRITER),
    "POST /api/pipelines/{name}/report": Rule(READERS, _PIPELINE),
    "GET /api/pipelines/router/routes": Rule(ADMINISTRATORS, _ROUTER),
    "POST /api/pipelines/router/sources": Rule(ADMINISTRATORS, _ROUTER),
    "POST /api/pipelines/router/realtime": Rule(ADMINISTRATORS, _ROUTER),
    "GET /api/pipelines/router/realtime": Rule(ADMINISTRATORS, _ROUTER),
    "POST /api/batches/offsets": Rule(READERS, "`describe` on the topics; of a pattern, those with it are listed"),
    "GET /api/sources": Rule(USERS, "`describe` on each source that is listed"),
    "POST /api/sources/{name}/attach": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/begin": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/tables": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/transactions": Rule(OWNERS, _CAPTURED),
    "POST /api/sources/{name}/rows": Rule(OWNERS, _CAPTURED),
    "PUT /api/sources/{name}/stages/{stage}/{part}": Rule(OWNERS, _CAPTURED),
    "POST /api/sources/{name}/large": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/report": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/want": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/begin": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/offer": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/progress": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/finish": Rule(OWNERS, _CAPTURE),
    "POST /api/sources/{name}/snapshot/end": Rule(OWNERS, _CAPTURE),
    "GET /api/snapshots": Rule(ADMINISTRATORS, _ROUTER),
    "POST /api/snapshots/claim": Rule(OWNERS, _CHUNK),
    "POST /api/snapshots/staged": Rule(OWNERS, _CHUNK),
    "POST /api/snapshots/failed": Rule(OWNERS, _CHUNK),
    "GET /api/shadows": Rule(USERS, "`describe` on the cluster to see them"),
    "GET /api/shadows/{name}": Rule(ADMINISTRATORS, _SHADOW),
    "GET /api/shadows/{name}/status": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/attach": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/report": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/fence": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/unfence": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/cut-over": Rule(ADMINISTRATORS, _SHADOW),
    "POST /api/shadows/{name}/roll-back": Rule(ADMINISTRATORS, _SHADOW),
}
"""By method and path."""

_ADMIN = "membership of `admin`"

SQL: tuple[SqlRule, ...] = (
    SqlRule("Query", "SELECT * FROM acme.bills", READERS, "`select` on each table, `consume` on each topic"),
    SqlRule("Query", 'SELECT "offset" FROM "acme.orders" LIMIT 1', READERS, "`select` on each table, `consume` on each topic"),
    SqlRule("Query", "SELECT 1", USERS, LOGIN),
    SqlRule("Query", "SELECT * FROM system.topics", USERS, "to see a row, `describe` on what it is about"),
    SqlRule("Write", "INSERT INTO acme.bills VALUES (7, 70)", OWNERS, "`insert` on the table"),
    SqlRule("Write", "INSERT INTO \"acme.orders\" (value) VALUES ('x')", OWNERS, "`publish` on the topic"),
    SqlRule("Write", "UPDATE acme.bills SET total = 2 WHERE id = 1", OWNERS, "`update` on the table, and `select` to read it"),
    SqlRule("Write", "DELETE FROM acme.bills WHERE id = 1", OWNERS, "`delete` on the table, and `select` to read it"),
    SqlRule("ExplainStatement", "EXPLAIN SELECT * FROM acme.bills", READERS, "what the statement needs that is explained"),
    SqlRule("BeginStatement", "BEGIN; COMMIT", USERS, LOGIN),
    SqlRule("CommitStatement", "BEGIN; COMMIT", USERS, LOGIN),
    SqlRule("RollbackStatement", "BEGIN; ROLLBACK", USERS, LOGIN),
    SqlRule("ShowStatement", "SHOW TOPICS", USERS, "`describe` on each object that is listed"),
    SqlRule("DescribeStatement", "DESCRIBE TOPIC acme.orders", READERS, "`describe` on the object"),
    SqlRule(
        "ConsumeStatement",
        "CONSUME FROM acme.orders GROUP 'acme.readers' LIMIT 1",
        READERS,
        "`consume` on the topic and the group",
    ),
    SqlRule(
        "AckStatement", "ACK acme.orders GROUP 'acme.readers' UPTO OFFSET 0", READERS, "`consume` on the topic and the group"
    ),
    SqlRule(
        "RedriveStatement",
        "REDRIVE DEAD LETTERS OF acme.orders",
        OWNERS,
        "`publish` on the topic, and `consume` on its dead letters",
    ),
    SqlRule("CreateTopicStatement", "CREATE TOPIC acme.new", OWNERS, "`create` on the topic or on the cluster"),
    SqlRule(
        "SetTopicStatement",
        "ALTER TOPIC acme.orders SET (retention_seconds = 86400)",
        OWNERS,
        "`alter` or `alter_configs` on the topic",
    ),
    SqlRule("AddPartitionsStatement", "ALTER TOPIC acme.orders ADD PARTITIONS 1", OWNERS, "`alter` on the topic"),
    SqlRule(
        "AddRouteStatement",
        "ALTER TOPIC acme.orders ADD SOURCE acme.bills ON INSERT",
        OWNERS,
        "`alter` and `publish` on the topic, and `select` on the table",
    ),
    SqlRule("DropRouteStatement", "ALTER TOPIC acme.orders DROP SOURCE acme.bills", OWNERS, "`alter` on the topic"),
    SqlRule("ClearTopicStatement", "CLEAR TOPIC acme.orders", OWNERS, "`drop` on the topic"),
    SqlRule("DropTopicStatement", "DROP TOPIC acme.unused", OWNERS, "`drop` on the topic"),
    SqlRule("CreateTableStatement", "CREATE TABLE acme.new_bills (id INT PRIMARY KEY)", OWNERS, "`create` on the table"),
    SqlRule(
        "CreateTableAsStatement",
        "CREATE TABLE acme.copied AS SELECT * FROM acme.bills",
        OWNERS,
        "`create` on the table, and what the query needs",
    ),
    SqlRule("AlterTableStatement", "ALTER TABLE acme.bills ADD COLUMN note TEXT", OWNERS, "`alter` on the table"),
    SqlRule("CreateIndexStatement", "CREATE INDEX acme_by_total ON acme.bills (total)", OWNERS, "`alter` on the table"),
    SqlRule("DropIndexStatement", "DROP INDEX acme.acme_by_total", OWNERS, "`alter` on the table of the index"),
    SqlRule("TruncateStatement", "TRUNCATE acme.bills", OWNERS, "`delete` on the table"),
    SqlRule("DropTableStatement", "DROP TABLE acme.unused_bills", OWNERS, "`drop` on the table"),
    SqlRule("CreateTypeStatement", "CREATE TYPE acme.mood AS ENUM ('sad')", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("AlterTypeStatement", "ALTER TYPE acme.mood ADD VALUE 'glad'", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("DropTypeStatement", "DROP TYPE acme.mood", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule(
        "CreateViewStatement",
        "CREATE VIEW acme.seen AS SELECT * FROM acme.bills",
        OWNERS,
        "`create` on the table of the view's name, and what the query needs",
    ),
    SqlRule("DropViewStatement", "DROP VIEW acme.seen", OWNERS, "`drop` on the table of the view's name"),
    SqlRule(
        "CreateSourceStatement",
        "CREATE SOURCE acme_new FROM POSTGRES 'postgresql://u@127.0.0.1:1/x'",
        OWNERS,
        "`create` on the source",
    ),
    SqlRule("AlterSourceStatement", "ALTER SOURCE acme_db SET (tables = 'public.*')", OWNERS, "`alter` on the source"),
    SqlRule("SnapshotSourceStatement", "ALTER SOURCE acme_db SNAPSHOT", OWNERS, "`alter` on the source"),
    SqlRule("ResyncSourceStatement", "ALTER SOURCE acme_db RESYNC", OWNERS, "`alter` on the source"),
    SqlRule("DropSourceStatement", "DROP SOURCE acme_db", OWNERS, "`drop` on the source"),
    SqlRule(
        "CreateShadowStatement",
        "CREATE SHADOW acme_copy FROM KAFKA '127.0.0.1:1' WITH (topics = 'acme.>')",
        ADMINISTRATORS,
        "`alter` on the cluster",
    ),
    SqlRule("AlterShadowStatement", "ALTER SHADOW acme_copy SET (throttle = '1 MB')", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("PauseShadowStatement", "ALTER SHADOW acme_copy PAUSE", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("SkipLostStatement", "ALTER SHADOW acme_copy SKIP LOST", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("DropShadowStatement", "DROP SHADOW acme_copy", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("SetPipelineStatement", "ALTER PIPELINE router SET (latency = 'batch')", ADMINISTRATORS, "`alter` on the cluster"),
    SqlRule("CreateUserStatement", "CREATE USER newcomer", ADMINISTRATORS, _ADMIN),
    SqlRule(
        "SetPasswordStatement",
        "ALTER USER newcomer PASSWORD 'a long one 1'",
        ADMINISTRATORS,
        f"{_ADMIN}; one's own password needs nothing",
    ),
    SqlRule("DropUserStatement", "DROP USER newcomer", ADMINISTRATORS, _ADMIN),
    SqlRule("CreateRoleStatement", "CREATE ROLE readers", ADMINISTRATORS, _ADMIN),
    SqlRule("DropRoleStatement", "DROP ROLE readers", ADMINISTRATORS, _ADMIN),
    SqlRule("GrantRoleStatement", "GRANT readers TO newcomer", ADMINISTRATORS, _ADMIN),
    SqlRule("RevokeRoleStatement", "REVOKE readers FROM newcomer", ADMINISTRATORS, _ADMIN),
    SqlRule(
        "GrantStatement",
        "GRANT SELECT ON TABLE acme.bills TO newcomer",
        ADMINISTRATORS,
        f"{_ADMIN}, or `admin` on what is granted",
    ),
    SqlRule(
        "RevokeStatement",
        "REVOKE SELECT ON TABLE acme.bills FROM newcomer",
        ADMINISTRATORS,
        f"{_ADMIN}, or `admin` on what is revoked",
    ),
    SqlRule("CreateTokenStatement", "CREATE TOKEN FOR newcomer", ADMINISTRATORS, f"{_ADMIN}; one's own token needs nothing"),
    SqlRule("DropTokenStatement", "DROP TOKEN '000000000000'", ADMINISTRATORS, f"{_ADMIN}; one's own token needs nothing"),
    SqlRule("AlterQuotaStatement", "ALTER USER newcomer RESET QUOTA", ADMINISTRATORS, "`alter_configs` on the cluster"),
    SqlRule(
        "AlterQuotaStatement",
        "ALTER USER newcomer SET QUOTA (requests = 100)",
        ADMINISTRATORS,
        "`alter_configs` on the cluster",
    ),
    SqlRule("ShowGrantsStatement", "SHOW GRANTS FOR newcomer", ADMINISTRATORS, f"{_ADMIN}; one's own grants need nothing"),
)
