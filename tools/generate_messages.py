"""Writes `src/tailrace/wire/messages/` from the descriptions of Kafka's messages in kio.

kio has one class for each message and version. Ours have one for each message, with the versions of each field. Run it when
kio knows newer versions: `python -m tools.generate_messages`. `tests/property/test_messages.py` compares the result with kio.
"""

import dataclasses
import keyword
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import kio.schema

from tailrace.wire.message import Api

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "tailrace" / "wire" / "messages"
LINE_LENGTH = 128

FAMILIES = {
    "produce": ("produce",),
    "fetch": ("fetch", "list_offsets", "offset_for_leader_epoch"),
    "cluster": ("api_versions", "metadata", "describe_cluster", "find_coordinator", "describe_log_dirs"),
    "topics": ("create_topics", "delete_topics", "create_partitions", "delete_records", "describe_topic_partitions"),
    "cluster_admin": (
        "elect_leaders",
        "alter_partition_reassignments",
        "list_partition_reassignments",
        "alter_replica_log_dirs",
        "update_features",
    ),
    "acls": ("describe_acls", "create_acls", "delete_acls"),
    "configs": ("describe_configs", "alter_configs", "incremental_alter_configs", "list_config_resources"),
    "groups": (
        "join_group",
        "sync_group",
        "heartbeat",
        "leave_group",
        "list_groups",
        "describe_groups",
        "delete_groups",
    ),
    "consumer_groups": ("consumer_group_heartbeat", "consumer_group_describe"),
    "group_offsets": ("offset_commit", "offset_fetch", "offset_delete"),
    "transactions": (
        "init_producer_id",
        "add_partitions_to_txn",
        "add_offsets_to_txn",
        "txn_offset_commit",
        "end_txn",
        "list_transactions",
        "describe_transactions",
        "describe_producers",
    ),
    "telemetry": ("get_telemetry_subscriptions", "push_telemetry"),
    "quotas": ("describe_client_quotas", "alter_client_quotas"),
    "authentication": (
        "sasl_handshake",
        "sasl_authenticate",
        "describe_user_scram_credentials",
        "alter_user_scram_credentials",
    ),
}
"""The APIs of each module."""

APIS = tuple(api for apis in FAMILIES.values() for api in apis)

RENAMED = {
    "alter_client_quotas": {"EntityData": "AlteredQuotaEntity", "OpData": "QuotaOperation", "EntryData": "QuotaAlteration"},
    "consumer_group_describe": {
        "Assignment": "DescribedAssignment",
        "DescribedGroup": "DescribedConsumerGroup",
        "Member": "DescribedConsumerMember",
        "TopicPartitions": "DescribedTopicPartitions",
    },
    "consumer_group_heartbeat": {"Assignment": "HeartbeatAssignment", "TopicPartitions": "HeartbeatTopicPartitions"},
    "describe_client_quotas": {
        "ComponentData": "QuotaFilterComponent",
        "EntityData": "DescribedQuotaEntity",
        "EntryData": "DescribedQuotas",
        "ValueData": "QuotaValue",
    },
    "describe_producers": {
        "PartitionResponse": "DescribeProducersPartitionResponse",
        "ProducerState": "DescribedProducer",
        "TopicRequest": "DescribeProducersTopic",
        "TopicResponse": "DescribeProducersTopicResponse",
    },
    "describe_topic_partitions": {
        "Cursor": "DescribeTopicPartitionsCursor",
        "TopicRequest": "DescribeTopicPartitionsTopic",
    },
    "describe_transactions": {"TopicData": "DescribedTransactionTopic", "TransactionState": "DescribedTransaction"},
    "elect_leaders": {"PartitionResult": "ElectLeadersPartitionResult", "TopicPartitions": "ElectLeadersTopicPartitions"},
    "fetch": {
        "AbortedTransaction": "FetchAbortedTransaction",
        "EpochEndOffset": "FetchEpochEndOffset",
        "LeaderIdAndEpoch": "FetchLeaderIdAndEpoch",
        "NodeEndpoint": "FetchNodeEndpoint",
        "PartitionData": "FetchPartitionData",
        "ReplicaState": "FetchReplicaState",
        "SnapshotId": "FetchSnapshotId",
    },
    "find_coordinator": {"Coordinator": "FoundCoordinator"},
    "incremental_alter_configs": {
        "AlterConfigsResource": "IncrementalAlterConfigsResource",
        "AlterConfigsResourceResponse": "IncrementalAlterConfigsResourceResponse",
        "AlterableConfig": "IncrementalAlterableConfig",
    },
    "leave_group": {"MemberIdentity": "LeaveGroupMember", "MemberResponse": "LeaveGroupMemberResponse"},
    "list_config_resources": {"ConfigResource": "ListedConfigResource"},
    "list_transactions": {"TransactionState": "ListedTransaction"},
    "produce": {"LeaderIdAndEpoch": "ProduceLeaderIdAndEpoch", "NodeEndpoint": "ProduceNodeEndpoint"},
}
"""Structs whose names in Kafka's descriptions would mean something else elsewhere in the tree, by API."""

RENAMED_RESPONSES = {"alter_client_quotas": {"EntryData": "QuotaAlterationResult"}}
"""Structs of responses whose names mean something else in the request of the same API."""

KINDS = {
    "bool": "Boolean",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "float64": "Float64",
    "uuid": "Uuid",
    "string": "String",
    "bytes": "Bytes",
    "records": "Records",
    "error_code": "Int16",
    "timedelta_i32": "Int32",
    "timedelta_i64": "Int64",
    "datetime_i64": "Int64",
}
ZEROS = {"Boolean": "False", "Float64": "0.0", "String": '""', "Bytes": 'b""', "Records": 'b""', "Uuid": "NO_UUID"}


@dataclasses.dataclass
class Field:
    """A field in all versions that have it."""

    name: str
    kind: str
    is_array: bool
    tag: int | None
    default: str
    versions: list[int]
    nullable: list[int]


class Structure(NamedTuple):
    name: str
    fields: list[Field]


class NewerVersion(NamedTuple):
    """What the version after the newest that kio knows changes, by Kafka's own description."""

    version: int
    added: dict[str, tuple[str, Field]]
    """By struct, a field and the one that it follows."""
    removed: dict[str, str]
    """By struct, a field that ends with the version before."""


def _topic_id() -> tuple[str, Field]:
    return "name", Field("topic_id", "Uuid", False, None, "NO_UUID", [6], [])


NEWER = {
    "delete_groups": NewerVersion(
        3, {"DeletableGroupResult": ("error_code", Field("error_message", "String", False, None, "None", [3], [3]))}, {}
    ),
    "txn_offset_commit": NewerVersion(
        6,
        {"TxnOffsetCommitRequestTopic": _topic_id(), "TxnOffsetCommitResponseTopic": _topic_id()},
        {"TxnOffsetCommitRequestTopic": "name", "TxnOffsetCommitResponseTopic": "name"},
    ),
}
"""Versions that Kafka's clients speak and kio does not know yet, by API."""


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.py"):
        old.unlink()
    (TARGET / "__init__.py").write_text(
        '"""Kafka\'s messages, a module for each family of APIs. Written by `tools/generate_messages.py`; do not edit."""\n'
    )
    for family in FAMILIES:
        (TARGET / f"{family}.py").write_text(module_text(family))
    for command in (["format"], ["check", "--fix"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--quiet", str(TARGET)], check=True)


def generated_apis() -> list[Api]:
    """Return what the generated modules say of each API, in the order of `APIS`."""
    modules = {api: import_module(f"tailrace.wire.messages.{family}") for family, apis in FAMILIES.items() for api in apis}
    return [getattr(modules[api], f"{api.upper()}_API") for api in APIS]


def versions_of(api: str) -> list[int]:
    folder = Path(kio.schema.__path__[0]) / api
    return sorted(int(path.name[1:]) for path in folder.glob("v*"))


def top_class(api: str, version: int, side: str) -> Any:
    module = import_module(f"kio.schema.{api}.v{version}.{side}")
    return getattr(module, api_name(api) + side.title())


def module_text(family: str) -> str:
    body = "\n\n".join(api_text(api) for api in FAMILIES[family])
    used = sorted({word for word in re.findall(r"[A-Z]\w+", body) if word in IMPORTABLE})
    names = ", ".join(api_name(api) for api in FAMILIES[family])
    docstring = textwrap.fill(f'"""Requests and responses of {names}."""', LINE_LENGTH)
    lines = [docstring, "", f"from tailrace.wire.message import {', '.join(used)}"]
    if "Annotated" in body:
        lines.insert(2, "from typing import Annotated\n")
    return "\n".join(lines) + "\n\n" + body


def api_name(api: str) -> str:
    return "".join(part.title() for part in api.split("_"))


def api_text(api: str) -> str:
    """Return the classes of one API and the constant that describes it."""
    versions = versions_of(api)
    request = top_class(api, versions[-1], "request")
    flexible = [version for version in versions if top_class(api, version, "request").__flexible__]
    name = api_name(api)
    newer = NEWER.get(api)
    structures = []
    responses = renamed(merge(api, versions, "response"), RENAMED_RESPONSES.get(api, {}))
    for structure in (*merge(api, versions, "request"), *responses):
        if structure not in structures:
            structures.append(structure)
    if newer is not None:
        for structure in structures:
            add_version(structure, newer, versions[-1])
        versions.append(newer.version)
    names = [structure.name for structure in structures]
    if len(set(names)) != len(names):
        raise SystemExit(f"{api}: two different structs have the same name: {names}")
    body = "\n\n".join(class_text(structure, versions) for structure in structures)
    constant = (
        f"{api.upper()}_API = Api({request.__api_key__}, {name!r}, {versions[0]}, {versions[-1]},"
        f" {flexible[0] if flexible else versions[-1] + 1}, {name}Request, {name}Response)"
    )
    names_here = RENAMED.get(api, {})
    return re.sub(r"\b[A-Z]\w+\b", lambda found: names_here.get(found[0], found[0]), f"{body}\n\n{constant}\n")


IMPORTABLE = {*KINDS.values(), "Api", "KafkaMessage", "NO_UUID", "NullableSince", "Since", "Tag", "Until"}


def merge(api: str, versions: list[int], side: str) -> list[Structure]:
    """Return the structs of one message, inner ones first, each with its fields of all versions."""
    structures: dict[str, dict[str, Field]] = {}
    orders: dict[str, list[str]] = {}
    for version in reversed(versions):
        for shape in nested(top_class(api, version, side)):
            fields = structures.setdefault(shape.__name__, {})
            order = orders.setdefault(shape.__name__, [])
            before = -1
            for field in dataclasses.fields(shape):
                found = describe(field, shape)
                known = fields.get(found.name)
                if known is None:
                    fields[found.name] = known = found
                    order.insert(before + 1, found.name)
                elif (known.kind, known.is_array, known.tag) != (found.kind, found.is_array, found.tag):
                    raise SystemExit(f"{api} {shape.__name__}.{found.name} changes its type in version {version}")
                before = order.index(found.name)
                known.versions.insert(0, version)
                if is_nullable(field, shape):
                    known.nullable.insert(0, version)
    return [Structure(name, [structures[name][field] for field in orders[name]]) for name in in_order(structures)]


def renamed(structures: list[Structure], names: dict[str, str]) -> list[Structure]:
    """Return the structs with other names, where they are declared and where they are used."""
    return [
        Structure(
            names.get(name, name), [dataclasses.replace(field, kind=names.get(field.kind, field.kind)) for field in fields]
        )
        for name, fields in structures
    ]


def add_version(structure: Structure, newer: NewerVersion, newest: int) -> None:
    """Add the newer version to the fields of a struct that go on, and the fields that it adds."""
    for field in structure.fields:
        if newest in field.versions and newer.removed.get(structure.name) != field.name:
            field.versions.append(newer.version)
            if newest in field.nullable:
                field.nullable.append(newer.version)
    if structure.name in newer.added:
        after, added = newer.added[structure.name]
        names = [field.name for field in structure.fields]
        structure.fields.insert(names.index(after) + 1, added)


def in_order(structures: dict[str, dict[str, Field]]) -> list[str]:
    ordered: list[str] = []

    def visit(name: str) -> None:
        for field in structures[name].values():
            if field.kind in structures:
                visit(field.kind)
        if name not in ordered:
            ordered.append(name)

    for name in structures:
        visit(name)
    return ordered


def nested(shape: Any) -> Iterator[Any]:
    """Yield the classes inside a class, then the class itself."""
    hints = typing.get_type_hints(shape)
    for hint in (hints[field.name] for field in dataclasses.fields(shape)):
        for part in flattened(hint):
            if dataclasses.is_dataclass(part):
                yield from nested(part)
    yield shape


def flattened(hint: Any) -> Iterator[Any]:
    yield hint
    for part in typing.get_args(hint):
        yield from flattened(part)


def describe(field: Any, shape: Any) -> Field:
    kafka_type = field.metadata.get("kafka_type")
    hint = typing.get_type_hints(shape)[field.name]
    parts = [part for part in typing.get_args(hint) if part is not type(None)] if is_union(hint) else [hint]
    (inner,) = parts
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner = typing.get_args(inner)[0]
    kind = KINDS[kafka_type] if kafka_type else inner.__name__
    name = field.name + ("_ms" if kafka_type and kafka_type.startswith(("timedelta", "datetime")) else "")
    if keyword.iskeyword(name):
        name += "_"
    return Field(name, kind, is_array, field.metadata.get("tag"), default_text(field, kind, is_array, shape), [], [])


def is_nullable(field: Any, shape: Any) -> bool:
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type == "uuid" or (kafka_type or "").startswith("datetime"):
        return False
    return is_union(typing.get_type_hints(shape)[field.name]) and type(None) in typing.get_args(
        typing.get_type_hints(shape)[field.name]
    )


def is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def default_text(field: Any, kind: str, is_array: bool, shape: Any) -> str:
    given = field.default
    if dataclasses.is_dataclass(given):
        return f"{kind}()"
    if given is dataclasses.MISSING:
        if is_array:
            return "()"
        if kind in KINDS.values():
            return ZEROS.get(kind, "0")
        return "None" if is_nullable(field, shape) else f"{kind}()"
    if given is None:
        return {"Uuid": "NO_UUID", "Int64": "-1"}.get(kind, "None")
    if hasattr(given, "total_seconds"):
        return str(round(given.total_seconds() * 1000))
    if hasattr(given, "value"):
        return str(given.value)
    if isinstance(given, int) and not isinstance(given, bool):
        return str(int(given))
    return repr(given).replace("'", '"')


def class_text(structure: Structure, versions: list[int]) -> str:
    if not structure.name.endswith(("Request", "Response")):
        # A struct inside another is only there in the versions of its fields.
        versions = sorted({version for field in structure.fields for version in field.versions})
    lines = [f"class {structure.name}(KafkaMessage, frozen=True, kw_only=True):"]
    lines += [f"    {field_text(field, versions)}" for field in structure.fields] or ["    pass"]
    return "\n".join(lines) + "\n"


def field_text(field: Field, versions: list[int]) -> str:
    """Return the declaration of a field. `versions` are those that have the struct."""
    kind = f"tuple[{field.kind}, ...]" if field.is_array else field.kind
    default = field.default
    marks = []
    if field.versions[0] > versions[0]:
        marks.append(f"Since({field.versions[0]})")
    if field.versions[-1] < versions[-1]:
        marks.append(f"Until({field.versions[-1]})")
    if field.nullable:
        kind += " | None"
        first = field.nullable[0]
        marks.append(f"NullableSince({0 if first == field.versions[0] else first})")
        if field.nullable != [version for version in field.versions if version >= first]:
            raise SystemExit(f"{field.name} is nullable in {field.nullable} of {field.versions}")
    elif default == "None":
        default = "()" if field.is_array else ZEROS.get(field.kind, "0")
    if field.tag is not None:
        marks.append(f"Tag({field.tag})")
    if marks:
        kind = f"Annotated[{kind}, {', '.join(marks)}]"
    return f"{field.name}: {kind} = {default}"


if __name__ == "__main__":
    main()
