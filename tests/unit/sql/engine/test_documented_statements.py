"""Every statement of the document on durable topics, as it is written there."""

import pytest

from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

CREATE = "CREATE TOPIC app.new_messages;"
CREATE_PARTITIONS = "CREATE TOPIC app.new_messages PARTITIONS 4;"

ROUTES = {
    "key": """
ALTER TOPIC app.new_messages
ADD SOURCE chat.messages
ON INSERT
WITH (payload = 'key');
""",
    "full": """
ALTER TOPIC app.new_messages
ADD SOURCE chat.messages
ON INSERT
WITH (payload = 'full');
""",
    "filtered": """
ALTER TOPIC app.new_messages
ADD SOURCE chat.messages
ON INSERT
WHERE (is_visible = true AND channel_id = 42)
WITH (payload = 'key');
""",
    "partitioned": """
ALTER TOPIC app.new_messages
ADD SOURCE chat.messages
ON INSERT
PARTITION BY (user_id)
WITH (payload = 'key');
""",
}

CONSUMES = {
    """
CONSUME FROM app.new_messages
GROUP 'ai-service'
FROM LATEST
LIMIT 100;
""": [],
    """
CONSUME FROM app.new_messages
GROUP 'ai-service'
FROM EARLIEST
LIMIT 100;
""": list(range(100)),
    """
CONSUME FROM app.new_messages
GROUP 'ai-service'
FROM OFFSET 12345
LIMIT 100;
""": list(range(12345, 12400)),
    """
CONSUME FROM app.new_messages_alias
GROUP 'ai-service'
FROM LATEST
LIMIT 100;
""": [],
}

ACK = """
ACK app.new_messages
GROUP 'ai-service'
PARTITION 0
UPTO OFFSET 220;
"""


async def publish(sql: SqlClient, count: int) -> None:
    for start in range(0, count, 5_000):
        numbers = range(start, min(count, start + 5_000))
        await sql.run("INSERT INTO app.new_messages (value) VALUES (?)", [[number] for number in numbers])


@on_loop
async def test_a_topic_is_created() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        assert sql.broker.topics.get("app.new_messages").topic.partitions == 1
        await sql.run("DROP TOPIC app.new_messages")
        await sql.run(CREATE_PARTITIONS)
        assert sql.broker.topics.get("app.new_messages").topic.partitions == 4


@pytest.mark.parametrize("kind", ROUTES)
@on_loop
async def test_a_route_is_added(kind: str) -> None:
    async with running_sql() as sql:
        await sql.run(CREATE_PARTITIONS)
        await sql.run(
            "CREATE TABLE chat.messages"
            " (id BIGINT PRIMARY KEY, channel_id INTEGER, user_id INTEGER, is_visible BOOLEAN, body TEXT)"
        )
        await sql.run(ROUTES[kind])
        (route,) = sql.broker.routes
        assert (route.topic_name, route.table_name, route.operations) == ("app.new_messages", "chat.messages", ("insert",))
        assert route.payload == ("full" if kind == "full" else "key")
        assert (route.where is not None) == (kind == "filtered")
        assert bool(route.partition_by) == (kind == "partitioned")


@pytest.mark.parametrize("statement", CONSUMES)
@on_loop
async def test_a_topic_is_consumed(statement: str) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC app.new_messages WITH (alias = 'app.new_messages_alias')")
        await publish(sql, 12_400)
        assert [row["offset"] for row in await sql.dicts(statement)] == CONSUMES[statement]


@on_loop
async def test_a_group_acks() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        await publish(sql, 300)
        await sql.run(ACK)
        consumed = await sql.dicts("CONSUME FROM app.new_messages GROUP 'ai-service' FROM EARLIEST LIMIT 1")
        assert [row["offset"] for row in consumed] == [221]
