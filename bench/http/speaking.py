"""Messages over HTTP: published a hundred at a time, consumed a thousand at a time."""

from itertools import count

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section
from bench.ground import Ground, settle_disk
from bench.http.client import HttpClient
from bench.http.measuring import Rate, cpu_of, rate, rates, rounds
from bench.http.server import HttpServer, serving
from bench.http.tasks import ConsumeMessages, PublishMessages

_BODY_BYTES = 100
_PUBLISHED_AT_ONCE = 100
_CONSUMED_AT_ONCE = 1_000
_CLIENTS = 4
_LEAST_PUBLISHED = 20_000
_LEAST_CONSUMED = 50_000


def run(ground: Ground) -> Section:
    scale = ground.scale.http
    with serving(ground) as server, HttpClient(server) as client:
        topics = _Topics(server, client)
        ground.say(f"publish, {_PUBLISHED_AT_ONCE} messages each")
        published = rounds(topics.publish, scale.messages, scale.rounds)
        ground.say(f"consume, {_CONSUMED_AT_ONCE:,} messages each")
        consumed = rounds(topics.consume, scale.messages, scale.rounds)
    return Section(
        title="HTTP: publish and consume",
        text=f"Messages with a body of {_BODY_BYTES} B. {_CLIENTS} connections publish {_PUBLISHED_AT_ONCE} messages a request"
        f" and wait for the sync; then one connection consumes them, {_CONSUMED_AT_ONCE:,} a request, from the start. Every"
        " message has a number, and each number must be there once.",
        figures=[
            Figure(name="publish", ours=rates(published), unit="messages/s", bar=Bar("at least", _LEAST_PUBLISHED)),
            Figure(name="consume", ours=rates(consumed), unit="messages/s", bar=Bar("at least", _LEAST_CONSUMED)),
        ],
        remarks=[f"CPU of the server for a message: {cpu_of(published)} in, {cpu_of(consumed)} out."],
    )


class _Topics:
    """A new topic for each round; the last one is consumed."""

    def __init__(self, server: HttpServer, client: HttpClient) -> None:
        self._server = server
        self._client = client
        self._numbers = count()
        self._topic = ""

    def publish(self, messages: int) -> Rate:
        self._topic = f"bench.spoken_{next(self._numbers)}"
        self._server.create_topic(self._topic)
        settle_disk()
        task = PublishMessages(
            topic=self._topic,
            first=0,
            messages=messages,
            messages_a_request=_PUBLISHED_AT_ONCE,
            body_bytes=_BODY_BYTES,
            connections=_CLIENTS,
        )
        found = rate(self._server, self._client, task, messages)
        if self._server.records_in(self._topic) != messages:
            raise AuditFailure(f"{self._topic} has {self._server.records_in(self._topic)} of {messages} messages")
        return found

    def consume(self, messages: int) -> Rate:
        task = ConsumeMessages(topic=self._topic, messages=messages, messages_a_request=_CONSUMED_AT_ONCE)
        return rate(self._server, self._client, task, messages)
