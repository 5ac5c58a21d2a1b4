"""Statements about topics, sources and consumers, word by word."""

import msgspec
import pytest

from tailrace.model.errors import SqlError, SqlSyntaxError
from tailrace.model.fetch import AtOffset, AtTime, StartAt, StartEdge
from tailrace.model.ids import RouteId
from tailrace.model.topic import CleanupPolicy, TopicOptions
from tailrace.sql.parse import bind, parse
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
    SetPipelineStatement,
    SetTopicStatement,
    ShowStatement,
    Statement,
)

NOON_MS = 1_769_601_600_000
"""2026-01-28 12:00 UTC."""


def only(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


@pytest.mark.parametrize(("given", "policy"), [("true", "compact"), ("FALSE", "delete")])
def test_compact_is_short_for_a_cleanup_policy(given: str, policy: CleanupPolicy) -> None:
    created = only(f"CREATE TOPIC a WITH (compact = {given}, delete_retention_seconds = 5)")
    assert isinstance(created, CreateTopicStatement)
    assert created.options == TopicOptions(cleanup_policy=policy, delete_retention_seconds=5)
    altered = only(f"ALTER TOPIC a SET (compact = {given})")
    assert isinstance(altered, SetTopicStatement)
    assert altered.options == TopicOptions(cleanup_policy=policy)


def test_a_topic_is_made_by_its_name() -> None:
    assert only("CREATE TOPIC app.new_messages;") == CreateTopicStatement(
        text="CREATE TOPIC app.new_messages", name="app.new_messages", line=1, column=1
    )


def test_a_topic_is_made_with_partitions_and_options() -> None:
    text = (
        "create topic if not exists a.b partitions 4 with (alias = 'x', retention_seconds = 60, retention_max_bytes = NULL,"
        " dedup = 'id', dedup_window_seconds = 5, compression = 'zstd')"
    )
    assert only(text) == CreateTopicStatement(
        text=text,
        name="a.b",
        partitions=4,
        alias="x",
        options=TopicOptions(
            retention_seconds=60, retention_max_bytes=None, dedup="id", dedup_window_seconds=5, compression="zstd"
        ),
        if_not_exists=True,
    )


def test_set_tells_an_alias_taken_away_from_one_left_alone() -> None:
    removed = only("ALTER TOPIC a.b SET (alias = NULL)")
    alone = only("ALTER TOPIC a.b SET (retention_seconds = 1)")
    assert isinstance(removed, SetTopicStatement)
    assert isinstance(alone, SetTopicStatement)
    assert (removed.alias, removed.options) == (None, TopicOptions())
    assert (alone.alias, alone.options) == (msgspec.UNSET, TopicOptions(retention_seconds=1))


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("ALTER TOPIC a.b ADD PARTITIONS 3", AddPartitionsStatement(text="", name="a.b", partitions=3)),
        ("CLEAR TOPIC a.b", ClearTopicStatement(text="", name="a.b")),
        ("DROP TOPIC a.b", DropTopicStatement(text="", name="a.b")),
        ("DROP TOPIC IF EXISTS a.b CASCADE", DropTopicStatement(text="", name="a.b", if_exists=True, cascade=True)),
        ("ALTER TOPIC a.b DROP SOURCE c.d", DropRouteStatement(text="", topic="a.b", table="c.d")),
        ("ALTER TOPIC a.b DROP ROUTE 7", DropRouteStatement(text="", topic="a.b", route_id=RouteId(7))),
        ("SHOW TOPICS", ShowStatement(text="", what="topics")),
        ("SHOW TABLES", ShowStatement(text="", what="tables")),
        ("SHOW ROUTES", ShowStatement(text="", what="routes")),
        ("SHOW GROUPS", ShowStatement(text="", what="groups")),
        ("SHOW PIPELINES", ShowStatement(text="", what="pipelines")),
        (
            "ALTER PIPELINE router SET (latency = 'realtime')",
            SetPipelineStatement(text="", name="router", latency="realtime"),
        ),
        ("alter pipeline router set (LATENCY = 'batch')", SetPipelineStatement(text="", name="router", latency="batch")),
        ("DESCRIBE TOPIC a.b", DescribeStatement(text="", what="topic", name="a.b")),
        ("DESCRIBE TABLE a.b", DescribeStatement(text="", what="table", name="a.b")),
        ("DESCRIBE a.b", DescribeStatement(text="", what=None, name="a.b")),
        (
            "ACK a.b GROUP 'g' PARTITION 2 UPTO OFFSET 7",
            AckStatement(text="", topic="a.b", group="g", partition=2, upto_offset=7),
        ),
        ("COMMIT a.b GROUP 'g' UPTO OFFSET 7", AckStatement(text="", topic="a.b", group="g", partition=0, upto_offset=7)),
        ('CLEAR TOPIC "my-topic"."Big"', ClearTopicStatement(text="", name="my-topic.Big")),
        ("CLEAR TOPIC a.b.c.d.e.f", ClearTopicStatement(text="", name="a.b.c.d.e.f")),
        ("CLEAR TOPIC select.from", ClearTopicStatement(text="", name="select.from")),
    ],
)
@pytest.mark.parametrize("change", [str, str.lower, lambda text: text.replace(" ", "\n/* a ; */ ") + ";"])
def test_statements_are_read_in_any_case_and_shape(text: str, statement: Statement, change: object) -> None:
    changed = change(text) if callable(change) else text
    if '"' in text or "'" in text:
        changed = text
    assert msgspec.structs.replace(only(changed), text="", line=1, column=1) == statement


def test_a_source_has_operations_a_filter_partitions_and_a_payload() -> None:
    added = only(
        "ALTER TOPIC app.x ADD SOURCE chat.messages ON INSERT, UPDATE, DELETE WHERE NEW.a = 1 AND OLD.b IN (1, 2)"
        " PARTITION BY (user_id, lower(name)) WITH (payload = 'diff', snapshot = true)"
    )
    assert isinstance(added, AddRouteStatement)
    assert (added.topic, added.table, added.payload, added.snapshot) == ("app.x", "chat.messages", "diff", True)
    assert added.operations == ("insert", "update", "delete")
    assert added.where is not None
    assert added.where.text == "NEW.a = 1 AND OLD.b IN (1, 2)"
    assert (added.where.line, added.where.column) == (1, 76)
    assert [one.text for one in added.partition_by] == ["user_id", "lower(name)"]
    assert not added.explain


def test_explain_shows_what_a_source_would_do() -> None:
    explained = only("EXPLAIN ALTER TOPIC a ADD SOURCE b ON INSERT")
    assert isinstance(explained, AddRouteStatement)
    assert explained.explain


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("", None),
        ("FROM LATEST", StartEdge.LATEST),
        ("from earliest", StartEdge.EARLIEST),
        ("FROM OFFSET 12345", AtOffset(12345)),
        ("FROM TIMESTAMP '2026-01-28T12:00:00Z'", AtTime(NOON_MS)),
        ("FROM TIMESTAMP '2026-01-28 12:00'", AtTime(NOON_MS)),
        ("FROM TIMESTAMP '2026-01-28T13:00:00+01:00'", AtTime(NOON_MS)),
        (f"FROM TIMESTAMP {NOON_MS}", AtTime(NOON_MS)),
    ],
)
def test_consume_begins_where_it_is_told(start: str, expected: StartAt | None) -> None:
    consume = only(f"CONSUME FROM a.b GROUP 'g' {start} LIMIT 5")
    assert isinstance(consume, ConsumeStatement)
    assert (consume.topic, consume.group, consume.start, consume.limit) == ("a.b", "g", expected, 5)


@pytest.mark.parametrize(("wait", "wait_ms"), [("'5s'", 5000), ("'250 ms'", 250), ("'1m'", 60_000), ("1500", 1500)])
def test_consume_waits_for_a_duration(wait: str, wait_ms: int) -> None:
    consume = only(f"CONSUME FROM a.b PARTITION 3 WAIT {wait}")
    assert isinstance(consume, ConsumeStatement)
    assert (consume.group, consume.partition, consume.limit, consume.wait_ms) == (None, 3, 100, wait_ms)


def test_parameters_stand_for_values() -> None:
    unbound = only("CONSUME FROM a.b GROUP ? FROM OFFSET ? LIMIT ?")
    assert unbound.parameters == ("1", "2", "3")
    bound = bind(unbound, {"1": "g", "2": 7, "3": 9})
    assert isinstance(bound, ConsumeStatement)
    assert (bound.group, bound.start, bound.limit) == ("g", AtOffset(7), 9)


def test_a_parameter_of_the_wrong_type_is_refused_with_its_place() -> None:
    with pytest.raises(
        SqlError, match=r"line 1, column 43: the last offset that was processed is '7'; it must be a whole number"
    ):
        bind(only("ACK a GROUP :g PARTITION 0 UPTO OFFSET    :n"), {"g": "g", "n": "7"})


def test_options_may_be_parameters() -> None:
    unbound = only("CREATE TOPIC a WITH (dedup = :d, alias = :a)")
    bound = bind(unbound, {"d": "content", "a": "b"})
    assert isinstance(bound, CreateTopicStatement)
    assert (bound.alias, bound.options.dedup) == ("b", "content")
    with pytest.raises(SqlError, match="option 'dedup' can't be 'often'; it must be 'id' or 'content'"):
        bind(unbound, {"d": "often", "a": "b"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TOPIC", "line 1, column 13: expected the name of a topic, found the end of the statement"),
        ("CREATE TOPIC 'a'", "line 1, column 14: expected the name of a topic, found \"'a'\""),
        ("CREATE TOPIC a.", "line 1, column 16: expected the rest of the name of a topic, found the end of the statement"),
        ("CREATE TOPIC a PARTITIONS many", "line 1, column 27: expected the number of partitions, found 'many'"),
        ("CREATE TOPIC a PARTITIONS 1.5", "line 1, column 27: the number of partitions is 1.5; it must be a whole number"),
        ("CREATE TOPIC a WITH (compact = true, cleanup_policy = 'delete')", "compact is short for cleanup_policy"),
        ("CREATE TOPIC a\nWITH (aliass = 'b')", "line 2, column 7: topics have no option 'aliass'"),
        ("CREATE TOPIC a WITH (alias 'b')", "line 1, column 28: expected =, found \"'b'\""),
        ("CREATE TOPIC a WITH (alias = 'b'", "line 1, column 33: expected , or ), found the end of the statement"),
        ("CREATE TOPIC a WITH (alias = 'b', alias = 'c')", "option 'alias' is set twice"),
        (
            "CREATE TOPIC a WITH (retention_seconds = 'long')",
            "line 1, column 42: option 'retention_seconds' can't be 'long'; it must be a whole number",
        ),
        ("CREATE TOPIC a b", "line 1, column 16: expected PARTITIONS, WITH or the end of the statement, found 'b'"),
        ("ALTER TOPIC a GROW", "expected SET, ADD SOURCE, ADD PARTITIONS, DROP SOURCE or DROP ROUTE, found 'GROW'"),
        ("ALTER TOPIC a ADD SOURCE b ON", "expected INSERT, UPDATE or DELETE, found the end of the statement"),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT, INSERT", "line 1, column 39: INSERT is listed twice"),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT WHERE", "expected an expression, found the end of the statement"),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT WHERE x =", "column 47: syntax error at the end of the expression"),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT WHERE (x = 1", "column 50: syntax error at the end of the expression"),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT PARTITION BY x", "line 1, column 51: expected (, found 'x'"),
        (
            "ALTER TOPIC a ADD SOURCE b ON INSERT WITH (payload = 'all')",
            "option 'payload' can't be 'all'; it must be 'key', 'full' or 'diff'",
        ),
        ("ALTER TOPIC a ADD SOURCE b ON INSERT WITH (speed = 1)", "sources have no option 'speed'"),
        ("EXPLAIN ALTER TOPIC a DROP SOURCE b", "expected ADD SOURCE"),
        ("CONSUME a.b", "line 1, column 1: expected CONSUME FROM, found 'CONSUME'"),
        ("CONSUME FROM a.b FROM NOW", "line 1, column 23: expected LATEST, EARLIEST, OFFSET or TIMESTAMP, found 'NOW'"),
        (
            "CONSUME FROM a.b LIMIT 5 LIMIT 6",
            "line 1, column 26: expected GROUP, PARTITION, FROM, WAIT, SKIP CORRUPT or the end",
        ),
        ("CONSUME FROM a.b WAIT '5 parsecs'", "'5 parsecs' is not a duration"),
        ("CONSUME FROM a.b FROM TIMESTAMP 'noon'", "'noon' is not a time"),
        ("CONSUME FROM a.b GROUP g", "line 1, column 24: the name of the group must be in single quotes: 'g'"),
        ("ACK a.b GROUP 'g' PARTITION 0", "expected UPTO OFFSET, found the end of the statement"),
        ("ACK a.b GROUP 'g' UPTO OFFSET 99999999999999999999", "it must be a whole number below 2^63"),
        (
            "SHOW NOTHING",
            (
                "line 1, column 6: expected TOPICS, TABLES, VIEWS, ROUTES, GROUPS, PIPELINES, SOURCES, SHADOWS, USERS, ROLES,"
                " TOKENS, QUOTAS or GRANTS, found 'NOTHING'"
            ),
        ),
        ("ALTER PIPELINE router", "line 1, column 22: expected SET, found the end of the statement"),
        ("ALTER PIPELINE router SET (speed = 1)", "line 1, column 28: pipelines have no option 'speed'; use latency"),
        (
            "ALTER PIPELINE router SET (latency = 'soon')",
            "line 1, column 38: option 'latency' can't be 'soon'; it must be 'batch' or 'realtime'",
        ),
        ("ALTER PIPELINE router SET (latency = realtime)", "the latency must be in single quotes: 'realtime'"),
        ("ALTER PIPELINE SET (latency = 'batch')", "line 1, column 20: expected SET, found '('"),
        ("ALTER GROUP g", "ALTER GROUP is not supported; expected ALTER TABLE or TYPE or TOPIC or PIPELINE or SOURCE"),
        ("DESCRIBE", "line 1, column 9: expected the name of a table, view or topic, found the end of the statement"),
        ("DESCRIBE a b", "line 1, column 12: expected the end of the statement, found 'b'"),
        ("CLEAR a.b", "expected CLEAR TOPIC, found 'CLEAR'"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"line {refused.value.line}, column {refused.value.column}: ")


def test_a_keyword_in_quotes_is_no_keyword() -> None:
    with pytest.raises(SqlSyntaxError, match="found '\"TOPIC\"'"):
        parse('SHOW "TOPIC"')
