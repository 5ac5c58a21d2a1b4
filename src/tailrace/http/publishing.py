"""`POST /api/topics/publish`: from the body to the answer."""

from tailrace.broker.broker import Broker
from tailrace.http.messages import Publish, PublishAnswer, read_body, to_messages, to_numbered, to_published


async def published(body: bytes, broker: Broker) -> PublishAnswer:
    asked = read_body(body, Publish)
    messages, numbered = to_messages(asked.messages), to_numbered(asked)
    return PublishAnswer(
        to_published(await (broker.publish(messages) if numbered is None else broker.publish_once(numbered, messages)))
    )
