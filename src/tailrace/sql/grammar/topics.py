"""CREATE TOPIC, ALTER TOPIC ... SET and ADD PARTITIONS, CLEAR TOPIC, DROP TOPIC; ADD SOURCE and DROP SOURCE.

CREATE TOPIC [IF NOT EXISTS] name [PARTITIONS n] [WITH (option = value, ...)]
ALTER TOPIC name SET (option = value, ...)
ALTER TOPIC name ADD PARTITIONS n
ALTER TOPIC name ADD SOURCE table ON INSERT [, UPDATE, DELETE] [WHERE condition] [PARTITION BY (value, ...)]
    [WITH (payload = 'key' | 'full' | 'diff', snapshot = true | false)]
ALTER TOPIC name DROP SOURCE table
CLEAR TOPIC name
DROP TOPIC [IF EXISTS] name [CASCADE]
"""

from collections.abc import Callable
from typing import Any, get_args

import msgspec
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tailrace.model.route import Operation, PayloadMode
from tailrace.model.topic import DedupMode, TimestampMode, TopicOptions
from tailrace.sql.dialect import parse_expression
from tailrace.sql.places import Place
from tailrace.sql.statements import (
    AddPartitions,
    AddSource,
    ClearTopic,
    CreateTopic,
    DropSource,
    DropTopic,
    SetTopic,
    Statement,
)
from tailrace.sql.words import Words

_TOPIC = "the name of a topic"
_TABLE = "the name of a table"
_OPERATIONS: dict[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


def create_topic(words: Words, text: str) -> Statement:
    words.expect("CREATE TOPIC")
    if_not_exists = words.take("IF NOT EXISTS")
    name = words.name(_TOPIC)
    partitions = words.integer("the number of partitions") if words.take("PARTITIONS") else None
    options = _options(words, _topic_option) if words.take("WITH") else {}
    words.expect_end("PARTITIONS, WITH" if partitions is None and not options else "")
    alias = options.pop("alias", None)
    return CreateTopic(
        text=text,
        name=name,
        partitions=partitions,
        alias=alias,
        options=TopicOptions(**options),
        if_not_exists=if_not_exists,
    )


def alter_topic(words: Words, text: str, *, source: str, explain: bool = False) -> Statement:
    """`source` is the whole text of the request, in which the expressions have their places."""
    words.expect("ALTER TOPIC")
    name = words.name(_TOPIC)
    if words.take("ADD SOURCE"):
        return _add_source(words, text, source, name, explain)
    if explain:
        words.fail("ADD SOURCE; only that can be explained")
    if words.take("ADD PARTITIONS"):
        more = words.integer("the number of partitions to add")
        words.expect_end()
        return AddPartitions(text=text, name=name, partitions=more)
    if words.take("DROP SOURCE"):
        table = words.name(_TABLE)
        words.expect_end()
        return DropSource(text=text, topic=name, table=table)
    words.one_of("SET", "ADD SOURCE", "ADD PARTITIONS", "DROP SOURCE")
    options = _options(words, _topic_option)
    words.expect_end()
    alias = options.pop("alias", msgspec.UNSET)
    return SetTopic(text=text, name=name, options=TopicOptions(**options), alias=alias)


def clear_topic(words: Words, text: str) -> Statement:
    words.expect("CLEAR TOPIC")
    name = words.name(_TOPIC)
    words.expect_end()
    return ClearTopic(text=text, name=name)


def drop_topic(words: Words, text: str) -> Statement:
    words.expect("DROP TOPIC")
    if_exists = words.take("IF EXISTS")
    name = words.name(_TOPIC)
    cascade = words.take("CASCADE")
    words.expect_end("" if cascade else "CASCADE")
    return DropTopic(text=text, name=name, if_exists=if_exists, cascade=cascade)


def _add_source(words: Words, text: str, source: str, topic: str, explain: bool) -> Statement:
    table = words.name(_TABLE)
    words.expect("ON")
    operations = [_operation(words)]
    while words.takes_comma():
        operations.append(_operation(words, operations))
    where = parse_expression(words.until("PARTITION BY", "WITH"), source) if words.take("WHERE") else None
    partition_by = _expressions(words, source) if words.take("PARTITION BY") else ()
    options = _options(words, _source_option) if words.take("WITH") else {}
    words.expect_end("" if options else "WHERE, PARTITION BY, WITH")
    return AddSource(
        text=text,
        topic=topic,
        table=table,
        operations=tuple(operations),
        where=where,
        partition_by=tuple(partition_by),
        explain=explain,
        **options,
    )


def _operation(words: Words, known: list[Operation] | None = None) -> Operation:
    operation = _OPERATIONS[words.one_of(*_OPERATIONS)]
    if known and operation in known:
        words.refuse(f"{operation.upper()} is named twice")
    return operation


def _expressions(words: Words, source: str) -> list[exp.Expression]:
    words.expect_open()
    found = [parse_expression(words.until_comma(), source)]
    while not words.closes():
        found.append(parse_expression(words.until_comma(), source))
    return found


def _options(words: Words, read: Callable[[Words, str, Place], object]) -> dict[str, Any]:
    words.expect_open()
    options: dict[str, Any] = {}
    while True:
        place = words.place
        name = words.word("the name of an option").lower()
        if name in options:
            words.refuse(f"{name} is set twice")
        words.expect_sign(TokenType.EQ, "=")
        options[name] = read(words, name, place)
        if words.closes():
            return options


def _topic_option(words: Words, name: str, place: Place) -> object:
    if name == "alias":
        return None if words.take("NULL") else words.string("the alias")
    if name not in TopicOptions.__struct_fields__:
        words.refuse(f"topics have no option {name!r}; they have alias, {', '.join(TopicOptions.__struct_fields__)}", place)
    value = words.value(f"the value of {name}", str if name in ("dedup", "timestamps") else int)
    if words.is_guess:
        return msgspec.UNSET
    try:
        return getattr(msgspec.convert({name: value}, TopicOptions), name)
    except msgspec.ValidationError:
        choices = {"dedup": DedupMode, "timestamps": TimestampMode}.get(name)
        wanted = "a whole number" if choices is None else " or ".join(map(repr, get_args(choices)))
        words.refuse(f"{name} can't be {value!r}; it is {wanted}")


def _source_option(words: Words, name: str, place: Place) -> object:
    if name == "payload":
        value = words.string("the payload")
        payloads: tuple[PayloadMode, ...] = ("key", "full", "diff")
        if value not in payloads:
            words.refuse(f"payload can't be {value!r}; it is 'key', 'full' or 'diff'")
        return value
    if name == "snapshot":
        return words.one_of("TRUE", "FALSE") == "TRUE"
    words.refuse(f"sources have no option {name!r}; they have payload and snapshot", place)
