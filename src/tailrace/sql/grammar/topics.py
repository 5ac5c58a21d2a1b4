"""Statements about topics: CREATE, ALTER, CLEAR and DROP TOPIC, CONSUME, ACK, REDRIVE; ALTER PIPELINE, SHOW and DESCRIBE.

CREATE TOPIC [IF NOT EXISTS] name [PARTITIONS n] [WITH (option = value, ...)]
ALTER TOPIC name SET (option = value, ...)
ALTER TOPIC name ADD PARTITIONS n
ALTER TOPIC name ADD SOURCE table ON INSERT [, UPDATE, DELETE] [WHERE condition] [PARTITION BY (value, ...)]
    [WITH (payload = 'key' | 'full' | 'diff', snapshot = true | false)]
ALTER TOPIC name DROP SOURCE table
ALTER TOPIC name DROP ROUTE number
CLEAR TOPIC name
DROP TOPIC [IF EXISTS] name [CASCADE]
CONSUME FROM topic [GROUP 'g'] [PARTITION p] [FROM LATEST | EARLIEST | OFFSET n | TIMESTAMP 't'] [LIMIT n] [WAIT '5s']
    [SKIP CORRUPT]
ACK topic GROUP 'g' [PARTITION p] UPTO OFFSET n
COMMIT topic GROUP 'g' [PARTITION p] UPTO OFFSET n
REDRIVE DEAD LETTERS OF topic [WHERE condition] [LIMIT n]
ALTER PIPELINE name SET (latency = 'batch' | 'realtime')
SHOW TOPICS | TABLES | VIEWS | ROUTES | GROUPS | PIPELINES | SOURCES | SHADOWS | USERS | ROLES | TOKENS
DESCRIBE [TOPIC | TABLE | VIEW] name
"""

import re
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from tailrace.model.fetch import AtOffset, AtTime, StartAt, StartEdge
from tailrace.model.ids import RouteId
from tailrace.model.pipeline import Latency
from tailrace.model.route import Operation, PayloadMode
from tailrace.model.topic import CleanupPolicy, CompressionMode, DedupMode, TimestampMode, TopicOptions
from tailrace.sql.grammar.expressions import expression_text
from tailrace.sql.grammar.selects import check_condition
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import (
    AckStatement,
    AddPartitionsStatement,
    AddRouteStatement,
    ClearTopicStatement,
    ConsumeStatement,
    CreateTopicStatement,
    DescribeStatement,
    DropRouteStatement,
    DropTopicStatement,
    ExpressionText,
    RedriveStatement,
    SetPipelineStatement,
    SetTopicStatement,
    ShownObjects,
    ShowStatement,
    Statement,
)
from tailrace.sql.text_positions import TextPosition, position_at

_TOPIC = "the name of a topic"
_CHOICES = {
    "cleanup_policy": CleanupPolicy,
    "compression": CompressionMode,
    "dedup": DedupMode,
    "timestamps": TimestampMode,
}
"""The values of topic options that are texts."""
_TABLE = "the name of a table"
_OPERATIONS: dict[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


_DURATION = re.compile(r"\s*(\d{1,9})\s*(ms|s|m)\s*", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000}
_SHOWN: dict[str, ShownObjects] = {
    "TOPICS": "topics",
    "TABLES": "tables",
    "VIEWS": "views",
    "ROUTES": "routes",
    "GROUPS": "groups",
    "PIPELINES": "pipelines",
    "SOURCES": "sources",
    "SHADOWS": "shadows",
    "USERS": "users",
    "ROLES": "roles",
    "TOKENS": "tokens",
    "QUOTAS": "quotas",
}
_DESCRIBED: dict[str, Literal["topic", "table", "view"]] = {"TOPIC": "topic", "TABLE": "table", "VIEW": "view"}


def create_topic(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE TOPIC")
    if_not_exists = reader.take("IF NOT EXISTS")
    name = reader.name(_TOPIC)
    partitions = reader.integer("the number of partitions") if reader.take("PARTITIONS") else None
    options = _topic_options(reader) if reader.take("WITH") else {}
    reader.expect_end("PARTITIONS, WITH" if partitions is None and not options else "")
    alias = options.pop("alias", None)
    return CreateTopicStatement(
        text=text,
        name=name,
        partitions=partitions,
        alias=alias,
        options=TopicOptions(**options),
        if_not_exists=if_not_exists,
    )


def alter_topic(reader: TokenReader, text: str, *, source: str, explain: bool = False) -> Statement:
    """`source` is the whole text of the request, to which the positions of expressions refer."""
    reader.expect("ALTER TOPIC")
    name = reader.name(_TOPIC)
    if reader.take("ADD SOURCE"):
        return _add_source(reader, text, source, name, explain)
    if explain:
        reader.fail("ADD SOURCE, the only clause that EXPLAIN supports")
    if reader.take("ADD PARTITIONS"):
        more = reader.integer("the number of partitions to add")
        reader.expect_end()
        return AddPartitionsStatement(text=text, name=name, partitions=more)
    if reader.take("DROP SOURCE"):
        table = reader.name(_TABLE)
        reader.expect_end()
        return DropRouteStatement(text=text, topic=name, table=table)
    if reader.take("DROP ROUTE"):
        number = reader.integer("the number of a route")
        reader.expect_end()
        return DropRouteStatement(text=text, topic=name, route_id=RouteId(number))
    reader.one_of("SET", "ADD SOURCE", "ADD PARTITIONS", "DROP SOURCE", "DROP ROUTE")
    options = _topic_options(reader)
    reader.expect_end()
    alias = options.pop("alias", msgspec.UNSET)
    return SetTopicStatement(text=text, name=name, options=TopicOptions(**options), alias=alias)


def clear_topic(reader: TokenReader, text: str) -> Statement:
    reader.expect("CLEAR TOPIC")
    name = reader.name(_TOPIC)
    reader.expect_end()
    return ClearTopicStatement(text=text, name=name)


def drop_topic(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP TOPIC")
    if_exists = reader.take("IF EXISTS")
    name = reader.name(_TOPIC)
    cascade = reader.take("CASCADE")
    reader.expect_end("" if cascade else "CASCADE")
    return DropTopicStatement(text=text, name=name, if_exists=if_exists, cascade=cascade)


def _add_source(reader: TokenReader, text: str, source: str, topic: str, explain: bool) -> Statement:
    table = reader.name(_TABLE)
    reader.expect("ON")
    operations = [_operation(reader)]
    while reader.takes_comma():
        operations.append(_operation(reader, operations))
    where = expression_text(reader.until("PARTITION BY", "WITH"), source) if reader.take("WHERE") else None
    partition_by = _expressions(reader, source) if reader.take("PARTITION BY") else ()
    options = reader.options(_source_option) if reader.take("WITH") else {}
    reader.expect_end("" if options else "WHERE, PARTITION BY, WITH")
    return AddRouteStatement(
        text=text,
        topic=topic,
        table=table,
        operations=tuple(operations),
        where=where,
        partition_by=tuple(partition_by),
        explain=explain,
        **options,
    )


def _operation(reader: TokenReader, known: list[Operation] | None = None) -> Operation:
    operation = _OPERATIONS[reader.one_of(*_OPERATIONS)]
    if known and operation in known:
        reader.reject(f"{operation.upper()} is listed twice; remove one")
    return operation


def _expressions(reader: TokenReader, source: str) -> list[ExpressionText]:
    reader.expect_open()
    found = [expression_text(reader.until_comma(), source)]
    while not reader.closes():
        found.append(expression_text(reader.until_comma(), source))
    return found


def _topic_options(reader: TokenReader) -> dict[str, Any]:
    """Read the options of a topic. `compact` is short for a cleanup policy."""
    position = reader.position
    options = reader.options(_topic_option)
    if "compact" in options:
        if "cleanup_policy" in options:
            reader.reject("compact is short for cleanup_policy; remove one of them", position)
        options["cleanup_policy"] = "compact" if options.pop("compact") else "delete"
    return options


def _topic_option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "alias":
        return None if reader.take("NULL") else reader.string("the alias")
    if name == "compact":
        return reader.one_of("TRUE", "FALSE") == "TRUE"
    if name not in TopicOptions.__struct_fields__:
        reader.reject(
            f"topics have no option {name!r}; use alias, compact, {', '.join(TopicOptions.__struct_fields__)}", position
        )
    value = reader.value(f"the value of {name}", str if name in _CHOICES else int)
    if reader.is_placeholder:
        return msgspec.UNSET
    try:
        return getattr(msgspec.convert({name: value}, TopicOptions), name)
    except msgspec.ValidationError:
        choices = _CHOICES.get(name)
        wanted = "a whole number" if choices is None else " or ".join(map(repr, get_args(choices)))
        reader.reject(f"option {name!r} can't be {value!r}; it must be {wanted}")


def _source_option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name == "payload":
        value = reader.string("the payload")
        payloads: tuple[PayloadMode, ...] = ("key", "full", "diff")
        if value not in payloads:
            reader.reject(f"option 'payload' can't be {value!r}; it must be 'key', 'full' or 'diff'")
        return value
    if name == "snapshot":
        return reader.one_of("TRUE", "FALSE") == "TRUE"
    reader.reject(f"sources have no option {name!r}; use payload or snapshot", position)


def consume(reader: TokenReader, text: str) -> Statement:
    reader.expect("CONSUME FROM")
    topic = reader.name(_TOPIC)
    group: str | None = None
    partition: int | None = None
    start: StartAt | None = None
    limit = 100
    wait_ms = 0
    skips_corrupt = False
    left = ["GROUP", "PARTITION", "FROM", "LIMIT", "WAIT", "SKIP CORRUPT"]
    while not reader.is_at_end:
        clause = reader.one_of(*left, "the end of the statement")
        left.remove(clause)
        if clause == "GROUP":
            group = reader.string("the name of the group")
        elif clause == "PARTITION":
            partition = reader.integer("the number of the partition")
        elif clause == "FROM":
            start = _start(reader)
        elif clause == "LIMIT":
            limit = reader.integer("the number of records")
        elif clause == "WAIT":
            wait_ms = _duration(reader)
        else:
            skips_corrupt = True
    return ConsumeStatement(
        text=text,
        topic=topic,
        group=group,
        partition=partition,
        start=start,
        limit=limit,
        wait_ms=wait_ms,
        skips_corrupt=skips_corrupt,
    )


def ack(reader: TokenReader, text: str) -> Statement:
    reader.one_of("ACK", "COMMIT")
    topic = reader.name(_TOPIC)
    reader.expect("GROUP")
    group = reader.string("the name of the group")
    partition = reader.integer("the number of the partition") if reader.take("PARTITION") else 0
    reader.expect("UPTO OFFSET")
    upto_offset = reader.integer("the last offset that was processed")
    reader.expect_end()
    return AckStatement(text=text, topic=topic, group=group, partition=partition, upto_offset=upto_offset)


def _start(reader: TokenReader) -> StartAt:
    kind = reader.one_of("LATEST", "EARLIEST", "OFFSET", "TIMESTAMP")
    if kind == "OFFSET":
        return AtOffset(reader.integer("the offset"))
    if kind == "TIMESTAMP":
        return AtTime(_timestamp_ms(reader))
    return StartEdge(kind.lower())


def _timestamp_ms(reader: TokenReader) -> int:
    value = reader.value("a time such as '2026-01-28T12:00:00Z', or milliseconds since 1970", int)
    if isinstance(value, datetime):
        time = value
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    else:
        try:
            time = datetime.fromisoformat(str(value))
        except ValueError:
            reader.reject(f"{value!r} is not a time; write it like '2026-01-28T12:00:00Z', or as milliseconds since 1970")
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _duration(reader: TokenReader) -> int:
    value = reader.value("a duration such as '5s', or milliseconds", int)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _DURATION.fullmatch(str(value))
    if found is None:
        reader.reject(f"{value!r} is not a duration; write it like '500ms', '5s' or '1m'")
    return int(found[1]) * _UNITS_MS[found[2].lower()]


def redrive(reader: TokenReader, text: str, source: str) -> Statement:
    """`source` is the whole text of the request, to which the positions in the condition refer."""
    reader.expect("REDRIVE DEAD LETTERS OF")
    topic = reader.name("the name of a topic")
    where = None
    line = column = 1
    if reader.take("WHERE"):
        tokens = reader.until("LIMIT")
        if not tokens:
            reader.fail("a condition")
        where = source[tokens[0].start : tokens[-1].end]
        line, column = position_at(source, tokens[0].start)
        check_condition(where, (line, column))
    limit = reader.integer("the number of dead letters") if reader.take("LIMIT") else None
    reader.expect_end("LIMIT" if where is not None else "WHERE, LIMIT")
    return RedriveStatement(text=text, topic=topic, where=where, where_line=line, where_column=column, limit=limit)


def alter_pipeline(reader: TokenReader, text: str) -> Statement:
    reader.expect("ALTER PIPELINE")
    name = reader.name("the name of a pipeline")
    reader.expect("SET")
    options = reader.options(_pipeline_option)
    reader.expect_end()
    return SetPipelineStatement(text=text, name=name, **options)


def _pipeline_option(reader: TokenReader, name: str, position: TextPosition) -> object:
    if name != "latency":
        reader.reject(f"pipelines have no option {name!r}; use latency", position)
    value = reader.string("the latency")
    if not reader.is_placeholder and value not in get_args(Latency):
        reader.reject(f"option 'latency' can't be {value!r}; it must be {' or '.join(map(repr, get_args(Latency)))}")
    return value


def show(reader: TokenReader, text: str) -> Statement:
    reader.expect("SHOW")
    what = _SHOWN[reader.one_of(*_SHOWN, "GRANTS")]
    reader.expect_end()
    return ShowStatement(text=text, what=what)


def describe(reader: TokenReader, text: str) -> Statement:
    reader.one_of("DESCRIBE", "DESC")
    said = next((word for word in _DESCRIBED if reader.take(word)), None)
    what = None if said is None else _DESCRIBED[said]
    name = reader.name(f"the name of a {what or 'table, view or topic'}")
    reader.expect_end()
    return DescribeStatement(text=text, what=what, name=name)
