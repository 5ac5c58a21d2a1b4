"""A request to each API of Kafka that is about something of the tenant `acme`.

What else is in it does not matter: permissions are checked before anything is looked up.
"""

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from tailrace.model.record import Record
from tailrace.wire.message import Api, KafkaMessage
from tailrace.wire.records import encode_batch

TOPIC, GROUP, TRANSACTIONAL_ID = "acme.orders", "acme.readers", "acme.tx"
_BY_NAME = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9, "TxnOffsetCommit": 4, "AddPartitionsToTxn": 3}
"""The highest version with the names of topics, or without batches of transactions, where later ones have ids."""
_PRODUCER = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 1, "producer_epoch": 0}
_PARTITION = [{"name": TOPIC, "partitions": [0]}]
_SASL_PLAIN = "PLAIN"
_MEMBER = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}
_ACL = {"resource_type": 2, "resource_name": "acme.free", "resource_pattern_type": 3, "principal": "User:newcomer", "host": "*"}
_TOPIC_RESOURCE, _READ, _ALLOW = 2, 3, 3

REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "ApiVersions": {"client_software_name": "test", "client_software_version": "1"},
    "SaslHandshake": {"mechanism": _SASL_PLAIN},
    "Metadata": {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
    "DescribeTopicPartitions": {"topics": [{"name": TOPIC}]},
    "DescribeCluster": {},
    "FindCoordinator": {"key_type": 0, "coordinator_keys": [GROUP]},
    "Produce": {
        "acks": 1,
        "timeout_ms": 1_000,
        "topic_data": [
            {
                "name": TOPIC,
                "partition_data": [{"index": 0, "records": encode_batch([Record(None, b"x", (), 1_700_000_000_000)])}],
            }
        ],
    },
    "InitProducerId": {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout_ms": 60_000},
    "Fetch": {"max_wait_ms": 0, "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1_000}]}]},
    "ListOffsets": {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    "OffsetForLeaderEpoch": {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]},
    # The session timeout is refused after the permissions were checked, so nobody waits for a group to form.
    "JoinGroup": {"group_id": GROUP, "session_timeout_ms": 1, "protocol_type": "consumer", "protocols": [{"name": "range"}]},
    "SyncGroup": _MEMBER,
    "Heartbeat": _MEMBER,
    "LeaveGroup": {"group_id": GROUP, "members": [{"member_id": "m"}]},
    "ConsumerGroupHeartbeat": {"group_id": GROUP, "member_id": "m", "member_epoch": 1},
    "DescribeGroups": {"groups": [GROUP]},
    "ConsumerGroupDescribe": {"group_ids": [GROUP]},
    "ListGroups": {},
    "DeleteGroups": {"groups_names": [GROUP]},
    "OffsetCommit": {
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    },
    "OffsetFetch": {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
    "OffsetDelete": {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    "AddPartitionsToTxn": {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_producer_id": 1,
        "v3_and_below_topics": _PARTITION,
    },
    "AddOffsetsToTxn": {**_PRODUCER, "group_id": GROUP},
    "TxnOffsetCommit": {**_PRODUCER, "group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    "EndTxn": _PRODUCER,
    "DescribeTransactions": {"transactional_ids": [TRANSACTIONAL_ID]},
    "ListTransactions": {},
    "DescribeProducers": {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    "CreateTopics": {"topics": [{"name": "acme.made", "num_partitions": 1, "replication_factor": 1}]},
    "CreatePartitions": {"topics": [{"name": TOPIC, "count": 2}]},
    "DeleteTopics": {"topics": [{"name": "acme.made"}]},
    "DeleteRecords": {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]},
    "DescribeLogDirs": {"topics": [{"topic": TOPIC, "partitions": [0]}]},
    "DescribeConfigs": {"resources": [{"resource_type": _TOPIC_RESOURCE, "resource_name": TOPIC}]},
    "AlterConfigs": {"resources": [{"resource_type": _TOPIC_RESOURCE, "resource_name": TOPIC}], "validate_only": True},
    "IncrementalAlterConfigs": {
        "resources": [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": TOPIC, "configs": [{"name": "retention.ms", "value": "1"}]}
        ],
        "validate_only": True,
    },
    "ListConfigResources": {},
    "ElectLeaders": {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
    "AlterPartitionReassignments": {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]},
    "ListPartitionReassignments": {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    "AlterReplicaLogDirs": {"dirs": [{"path": "/", "topics": _PARTITION}]},
    "UpdateFeatures": {"feature_updates": [{"feature": "x", "max_version_level": 1}], "validate_only": True},
    "DescribeAcls": {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    },
    "CreateAcls": {"creations": [{**_ACL, "operation": _READ, "permission_type": _ALLOW}]},
    "DeleteAcls": {
        "filters": [
            {
                "resource_type_filter": 2,
                "resource_name_filter": "acme.free",
                "principal_filter": "User:newcomer",
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            }
        ]
    },
    "DescribeUserScramCredentials": {"users": [{"name": "newcomer"}]},
    "AlterUserScramCredentials": {"deletions": [{"name": "newcomer", "mechanism": 1}]},
    "DescribeClientQuotas": {"components": [{"entity_type": "user", "match_type": 0, "match": "newcomer"}]},
    "AlterClientQuotas": {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "newcomer"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e6}],
            }
        ],
        "validate_only": True,
    },
    "GetTelemetrySubscriptions": {},
    "PushTelemetry": {},
}
"""By the name of the API, the fields of the request. `SaslAuthenticate` is sent with each login."""


def request_of(api: Api) -> tuple[KafkaMessage, int]:
    """Return the request to an API, and the version in which it is sent."""
    return made(api.request, REQUESTS[api.name]), min(api.highest, _BY_NAME.get(api.name, api.highest))


def made(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """Return a message with these fields, some of which are messages given by their fields."""
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], value) for name, value in fields.items()})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return made(_message_in(hint), value)
    return tuple(_value(hint, each) for each in value) if isinstance(value, list) else value


def _message_in(hint: Any) -> type[Any]:
    if isinstance(hint, type) and issubclass(hint, KafkaMessage):
        return hint
    return next(found for each in get_args(hint) if each is not Ellipsis for found in [_message_in(each)])
