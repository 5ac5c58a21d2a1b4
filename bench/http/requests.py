"""INSERTs, messages and subscribers over HTTP: single rows and batches, publish and consume, delays to many subscribers."""

from itertools import count
from typing import NamedTuple

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section
from bench.http.client import HttpClient
from bench.http.rates import Rate, cpu_of, percentile, rate, rates, rounds
from bench.http.server import HttpServer, serving
from bench.http.tasks import ConsumeMessages, Form, InsertRows, PublishMessages, PublishSteadily, Subscribe
from bench.kafka.tasks import Delays
from bench.worker_process import expect
from bench.workspace import Workspace, settle_disk

_TABLE = "bench.rows"
_BODY_BYTES = 100
_INSERT_CLIENTS = 32
_MANY = 1_000
_FEW_CLIENTS = 4
_LEAST_SINGLE = 2_000
_LEAST_MANY = 100_000


def run_inserts(workspace: Workspace) -> Section:
    scale = workspace.scale.http
    with serving(workspace) as server, HttpClient(server) as client:
        server.sql(f"CREATE TABLE {_TABLE} (id BIGINT, body TEXT, PRIMARY KEY (id))")
        rows = _InsertedRows(server, client)
        workspace.say(f"INSERT, {_INSERT_CLIENTS} clients")
        single = rounds(lambda work: rows.insert(work, 1, _INSERT_CLIENTS, "parameters"), scale.single_rows, scale.rounds)
        written = rounds(lambda work: rows.insert(work, 1, _INSERT_CLIENTS, "text"), scale.single_rows, scale.rounds)
        workspace.say(f"INSERT, {_MANY:,} rows each")
        many = rounds(lambda work: rows.insert(work, _MANY, _FEW_CLIENTS, "text"), scale.many_rows, scale.rounds)
        runs = rounds(lambda work: rows.insert(work, _MANY, _FEW_CLIENTS, "parameters"), scale.many_rows, scale.rounds)
        rows.check()
    return Section(
        title="SQL: rows into a table",
        text=f"`INSERT` of rows of {_BODY_BYTES} B over HTTP, in a process of its own that keeps one request on its way for"
        " each client. Each is answered when the row and its change event are on the disk. Afterwards the table is counted and"
        " its keys are added up, and so are its change events.",
        figures=[
            Figure(
                name=f"one row each, {_INSERT_CLIENTS} clients, parameters",
                ours=rates(single),
                unit="rows/s",
                bar=Bar("at least", _LEAST_SINGLE),
            ),
            Figure(
                name=f"one row each, {_INSERT_CLIENTS} clients, values in the text",
                ours=rates(written),
                unit="rows/s",
                bar=Bar("at least", _LEAST_SINGLE),
            ),
            Figure(
                name=f"{_MANY:,} rows each, {_FEW_CLIENTS} clients, values in the text",
                ours=rates(many),
                unit="rows/s",
                bar=Bar("at least", _LEAST_MANY),
            ),
            Figure(
                name=f"{_MANY:,} rows each, {_FEW_CLIENTS} clients, lists of parameters",
                ours=rates(runs),
                unit="rows/s",
                bar=Bar("at least", _LEAST_MANY),
            ),
        ],
        remarks=[
            f"CPU of the server for a row, in this order: {cpu_of(single)}, {cpu_of(written)}, {cpu_of(many)}, {cpu_of(runs)}."
        ],
    )


class _InsertedRows:
    """The rows that were written so far, with ids from 0."""

    def __init__(self, server: HttpServer, client: HttpClient) -> None:
        self._server = server
        self._client = client
        self._written = 0

    def insert(self, rows: int, rows_a_request: int, connections: int, form: Form) -> Rate:
        settle_disk()
        task = InsertRows(
            table=_TABLE,
            first_id=self._written,
            rows=rows,
            rows_a_request=rows_a_request,
            body_bytes=_BODY_BYTES,
            connections=connections,
            form=form,
        )
        self._written += rows
        return rate(self._server, self._client, task, rows)

    def check(self) -> None:
        expected = [self._written, self._written * (self._written - 1) // 2]
        for found in (
            self._server.sql(f"SELECT count(*), sum(id) FROM {_TABLE}"),
            self._server.sql(f"SELECT count(*), sum(id) FROM table_changes('{_TABLE}') WHERE _change_type = 'insert'"),
        ):
            if [int(each) for each in found[0]] != expected:
                raise AuditFailure(f"{_TABLE} gives count and sum {found[0]}, and {expected} were acknowledged")


_PUBLISHED_AT_ONCE = 100
_CONSUMED_AT_ONCE = 1_000
_CLIENTS = 4
_LEAST_PUBLISHED = 20_000
_LEAST_CONSUMED = 50_000


def run_messages(workspace: Workspace) -> Section:
    scale = workspace.scale.http
    with serving(workspace) as server, HttpClient(server) as client:
        topics = _Topics(server, client)
        workspace.say(f"publish, {_PUBLISHED_AT_ONCE} messages each")
        published = rounds(topics.publish, scale.messages, scale.rounds)
        workspace.say(f"consume, {_CONSUMED_AT_ONCE:,} messages each")
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
    """Publishes to a new topic in each round and consumes the last one."""

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


_PER_SECOND = 100
_MOST_DELAY_MS = 1_000
"""Limits the delay of the slowest percent."""


class _Fed(NamedTuple):
    p50: float
    p99: float
    cpu_share: float
    """The share of one core while messages arrived."""
    memory_megabytes: float


def run_subscribers(workspace: Workspace) -> Section:
    scale = workspace.scale.http
    messages = round(_PER_SECOND * scale.fed_seconds)
    with serving(workspace) as server, HttpClient(server) as publisher:
        workspace.say(f"{scale.subscribers:,} subscribers")
        fed = [_feed(server, publisher, number, scale.subscribers, messages) for number in range(scale.rounds)]
    return Section(
        title="HTTP: subscribers",
        text=f"{scale.subscribers:,} subscribers by Server-Sent Events, all in one process, of one topic that gets"
        f" {_PER_SECOND} messages a second, one by one. Each subscriber must get each message once and in the order of cursors."
        " The delay is that from the publisher's request to the subscriber's socket, of all events together.",
        figures=[
            Figure(
                name="delay, p99",
                ours=Samples(tuple(each.p99 for each in fed)),
                unit="ms",
                bar=Bar("at most", _MOST_DELAY_MS),
            ),
            Figure(name="delay, p50", ours=Samples(tuple(each.p50 for each in fed)), unit="ms"),
            Figure(name="CPU of the server", ours=Samples(tuple(each.cpu_share for each in fed)), unit="cores"),
            Figure(name="memory of the server", ours=Samples(tuple(each.memory_megabytes for each in fed)), unit="MB"),
        ],
        remarks=[f"That is {scale.subscribers * _PER_SECOND:,} events/s; the process that gets them shares the cores too."],
    )


def _feed(server: HttpServer, publisher: HttpClient, number: int, subscribers: int, messages: int) -> _Fed:
    topic = f"fed_{number}.messages"
    server.create_topic(topic)
    with HttpClient(server) as process:
        process.ask(Subscribe(pattern=topic, subscribers=subscribers, messages=messages))
        before = server.cpu_seconds
        publisher.ask(PublishSteadily(topic=topic, messages=messages, per_second=_PER_SECOND))
        delays = expect(Delays, process.receive()).seconds
        used = server.cpu_seconds - before
    return _Fed(percentile(delays, 0.5), percentile(delays, 0.99), used / (messages / _PER_SECOND), server.memory_megabytes)
