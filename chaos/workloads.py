"""The workloads of a run: each prepares topics or tables on a fresh server and brings its workers."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from chaos.api import RefusedError, RunApi
from chaos.database import PASSWORD_VARIABLE, ReplayedSource
from chaos.history import CopyInspection, DeclaredTopic, ReplayInspection, SeenRecord
from chaos.other_kafka import ComparedCopy
from chaos.pipeline import START_SECONDS
from chaos.testbed import Testbed
from chaos.workers import aio, librdkafka, postgres
from chaos.workers.http_members import CommittedOffsetsPoller, HttpMember
from chaos.workers.http_topics import BoundsPoller, HttpPublisher, HttpReader
from chaos.workers.kafka_members import KafkaMember
from chaos.workers.librdkafka import LibrdkafkaReader, LibrdkafkaSender
from chaos.workers.queue_members import VISIBILITY_MS, QueueMember, SdkQueueMember, settle, take
from chaos.workers.sdk import SdkPublisher, SdkReader
from chaos.workers.sql_topics import SqlPublisher, SqlReader
from chaos.workers.tables import CREATE, TableReaderWorker, TableWriterWorker, change_seen, read_table, routed_seen
from chaos.workers.transactions import Processor
from chaos.workers.worker import RunTopic, Worker, WorkerContext
from tests.compat.kinds import SPARK_JARS
from tests.compat.prepare import prepare_connector
from tests.support.eventually import eventually
from tests.support.postgres_load import all_tables, create_tables

ROUTED_PARTITIONS = 3


class WorkloadRate(NamedTuple):
    """Scales the operations per second of all workers."""

    factor: float = 1.0

    def per_second(self, usual: float) -> float:
        return usual * self.factor


class Workload:
    """Prepared once, then its workers run. The `topics` are read at the end."""

    name = ""

    def __init__(self, context: WorkerContext, seed: int, load: WorkloadRate) -> None:
        self.context = context
        self.seed = seed
        self.load = load
        self.topics: list[RunTopic] = []

    def prepare(self, api: RunApi) -> None:
        raise NotImplementedError

    def start_companions(self, testbed: Testbed) -> None:
        """Start what the workload needs besides the server."""

    def workers(self) -> Sequence[Worker]:
        raise NotImplementedError

    def translate(self, seen: SeenRecord) -> SeenRecord:
        """Turn a record into the form that the checker expects, for topics that hold more than plain values."""
        return seen

    def finish(self, api: RunApi) -> None:
        """Make the last calls of the workload, when all workers have ended and no fault is active."""

    def make_topic(self, api: RunApi, name: str, partitions: int, *, kept: bool = True, **settings: object) -> RunTopic:
        shape = RunTopic(f"{self.name}.{name}", partitions)
        api.create_topic(shape.name, partitions, **settings)
        self.declare(shape, kept=kept)
        return shape

    def declare(self, shape: RunTopic, *, kept: bool = True, table: str = "", routed: bool = False) -> None:
        recorder = self.context.recorder
        recorder.write(DeclaredTopic(recorder.now(), shape.name, kept, table, routed))
        self.topics.append(shape)

    def route(self, api: RunApi, table: str, topic: str) -> None:
        """Have the changes of a table routed to a topic of its own."""
        api.create_topic(topic, ROUTED_PARTITIONS)
        self.declare(RunTopic(topic, ROUTED_PARTITIONS), table=table, routed=True)
        api.sql(f"ALTER TOPIC {topic} ADD SOURCE {table} ON INSERT, UPDATE, DELETE WITH (payload = 'diff')")


class QueueWorkload(Workload):
    name = "queue"

    def prepare(self, api: RunApi) -> None:
        for number in range(3):
            self.make_topic(api, f"t{number}", 3)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            librdkafka.LibrdkafkaSender("rd-send-1", context, seed, rate(12), self.topics),
            librdkafka.LibrdkafkaSender("rd-send-2", context, seed, rate(12), self.topics),
            aio.AioSender("aio-send", context, seed, rate(15), self.topics),
            librdkafka.LibrdkafkaReader("rd-read-1", context, seed, rate(10), self.topics),
            librdkafka.LibrdkafkaReader("rd-read-2", context, seed, rate(10), self.topics, committed=False),
            aio.AioReader("aio-read", context, seed, rate(10), self.topics),
            BoundsPoller("bounds", context, seed, rate(4), self.topics),
        ]


RANGE_GROUP = "groups-range"
COOPERATIVE_GROUP = "groups-cooperative"


class GroupsWorkload(Workload):
    """One group of clients of both kinds, and one that shares out step by step."""

    name = "groups"

    def prepare(self, api: RunApi) -> None:
        self.make_topic(api, "t0", 4)
        self.make_topic(api, "t1", 2)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            LibrdkafkaSender("gr-send", context, seed, rate(12), self.topics),
            KafkaMember("gr-rd-1", context, seed, rate(5), self.topics, RANGE_GROUP, "range"),
            HttpMember("gr-http-1", context, seed, rate(4), self.topics, RANGE_GROUP),
            HttpMember("gr-http-2", context, seed, rate(4), self.topics, RANGE_GROUP),
            KafkaMember("gr-rd-2", context, seed, rate(5), self.topics, COOPERATIVE_GROUP, "cooperative-sticky"),
            KafkaMember("gr-rd-3", context, seed, rate(5), self.topics, COOPERATIVE_GROUP, "cooperative-sticky"),
            CommittedOffsetsPoller("gr-ask", context, seed, rate(3), (RANGE_GROUP, COOPERATIVE_GROUP)),
        ]


TRANSACTIONS_GROUP = "transactions"


class TransactionsWorkload(Workload):
    name = "transactions"

    def prepare(self, api: RunApi) -> None:
        self._source = self.make_topic(api, "in", 2)
        self._target = self.make_topic(api, "out", 3)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        first, second = self._source.locations
        return [
            LibrdkafkaSender("tx-send", context, seed, rate(6), [self._source]),
            Processor("tx-1", context, seed, rate(4), [first], self._target, TRANSACTIONS_GROUP),
            Processor("tx-2", context, seed, rate(4), [second], self._target, TRANSACTIONS_GROUP),
            LibrdkafkaReader("tx-read-1", context, seed, rate(8), [self._target]),
            LibrdkafkaReader("tx-read-2", context, seed, rate(4), [self._target], committed=False),
            CommittedOffsetsPoller("tx-ask", context, seed, rate(2), (TRANSACTIONS_GROUP,)),
        ]


QUEUES_GROUP = "queues-workers"
QUEUES_PATTERN = "queues.*"
EMPTY_SECONDS = 60.0


class QueuesWorkload(Workload):
    name = "queues"

    def prepare(self, api: RunApi) -> None:
        self.make_topic(api, "t0", 2)
        self.make_topic(api, "t1", 1)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            LibrdkafkaSender("qu-send", context, seed, rate(5), self.topics),
            QueueMember("qu-http-1", context, seed, rate(4), self.topics, QUEUES_GROUP, QUEUES_PATTERN),
            QueueMember("qu-http-2", context, seed, rate(4), self.topics, QUEUES_GROUP, QUEUES_PATTERN),
            SdkQueueMember("qu-sdk", context, seed, rate(4), QUEUES_GROUP, QUEUES_PATTERN),
        ]

    def finish(self, api: RunApi) -> None:
        """Receive and acknowledge until nothing has come for longer than a record can be held."""
        deadline = time.monotonic() + EMPTY_SECONDS
        last = time.monotonic()
        while time.monotonic() < min(last + VISIBILITY_MS / 1000 + 1, deadline):
            taken = take(self.context.recorder, api, "qu-final", QUEUES_GROUP, QUEUES_PATTERN, 200, final=True)
            for receipt, value in taken:
                settle(self.context.recorder, api, "qu-final", QUEUES_GROUP, receipt, value, acked=True)
                last = time.monotonic()


KEEP_BYTES = 60_000
PADDING = 1_500


class RetentionWorkload(Workload):
    """Topics keep so little that a slow reader falls off, and segments die and are cleaned."""

    name = "retention"

    def prepare(self, api: RunApi) -> None:
        self.make_topic(api, "t0", 2, kept=False, retention_max_bytes=KEEP_BYTES)
        self.make_topic(api, "t1", 1, kept=False, retention_max_bytes=KEEP_BYTES)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            LibrdkafkaSender("re-send", context, seed, rate(12), self.topics, padding=PADDING),
            LibrdkafkaReader("re-read", context, seed, rate(10), self.topics),
            LibrdkafkaReader("re-slow", context, seed, rate(0.5), self.topics, slow=True, reassign=0),
            HttpReader("re-http", context, seed, rate(2), self.topics),
            BoundsPoller("re-bounds", context, seed, rate(4), self.topics),
        ]


TABLES = ("shop.orders", "shop.customers")


class TablesWorkload(Workload):
    name = "tables"

    def prepare(self, api: RunApi) -> None:
        for table in TABLES:
            api.sql(CREATE.format(table))
            self.declare(RunTopic(f"_changes.{table}", 1), table=table)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            TableWriterWorker("tb-write-1", context, seed, rate(12), TABLES),
            TableWriterWorker("tb-write-2", context, seed, rate(12), TABLES),
            TableReaderWorker("tb-read", context, seed, rate(4), TABLES),
        ]

    def translate(self, seen: SeenRecord) -> SeenRecord:
        return change_seen(seen)

    def finish(self, api: RunApi) -> None:
        for table in TABLES:
            read_table(self.context.recorder, api, "tb-final", table, final=True)


class MixedWorkload(Workload):
    name = "mixed"

    def prepare(self, api: RunApi) -> None:
        self.make_topic(api, "t0", 3)
        self.make_topic(api, "t1", 1)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            librdkafka.LibrdkafkaSender("mx-rd-send", context, seed, rate(6), self.topics),
            aio.AioSender("mx-aio-send", context, seed, rate(6), self.topics),
            HttpPublisher("mx-http-send", context, seed, rate(6), self.topics),
            SqlPublisher("mx-sql-send", context, seed, rate(4), self.topics),
            SdkPublisher("mx-sdk-send", context, seed, rate(6), self.topics),
            librdkafka.LibrdkafkaReader("mx-rd-read", context, seed, rate(6), self.topics),
            aio.AioReader("mx-aio-read", context, seed, rate(6), self.topics),
            HttpReader("mx-http-read", context, seed, rate(6), self.topics),
            SqlReader("mx-sql-read", context, seed, rate(2), self.topics),
            SdkReader("mx-sdk-read", context, seed, rate(6), self.topics),
            BoundsPoller("mx-bounds", context, seed, rate(3), self.topics),
        ]


CDC_TABLE = "crm.people"
ROUTED = ("cdc.all", "cdc.again")
CAUGHT_UP_SECONDS = 150.0


class CdcWorkload(Workload):
    name = "cdc"

    def prepare(self, api: RunApi) -> None:
        api.sql(CREATE.format(CDC_TABLE))
        self.declare(RunTopic(f"_changes.{CDC_TABLE}", 1), table=CDC_TABLE)
        for topic in ROUTED:
            self.route(api, CDC_TABLE, topic)

    def start_companions(self, testbed: Testbed) -> None:
        testbed.pipeline.start(testbed.url)
        testbed.pipeline.await_running(testbed.server.url)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            TableWriterWorker("cd-write-1", context, seed, rate(12), (CDC_TABLE,)),
            TableWriterWorker("cd-write-2", context, seed, rate(12), (CDC_TABLE,)),
            TableReaderWorker("cd-read", context, seed, rate(2), (CDC_TABLE,)),
        ]

    def translate(self, seen: SeenRecord) -> SeenRecord:
        return row_seen(seen)

    def finish(self, api: RunApi) -> None:
        await_routed(api, CDC_TABLE, ROUTED)
        read_table(self.context.recorder, api, "cd-final", CDC_TABLE, final=True)


class RealtimeWorkload(CdcWorkload):
    """The same in real time, with Spark's Kafka connector from Maven Central."""

    name = "realtime"

    def start_companions(self, testbed: Testbed) -> None:
        prepare_connector()
        flags = ("--master", "local[2]", "--latency", "realtime", "--jars", str(SPARK_JARS), "--kafka", testbed.kafka)
        testbed.pipeline.start(testbed.url, *flags)
        testbed.pipeline.await_running(testbed.server.url)


POSTGRES_OWNERS = (1, 2)
CAPTURED_AND_ROUTED = "pg.routed"


class PostgresWorkload(Workload):
    """A PostgreSQL that is captured and routed: rows that are followed one by one, and transactions of all kinds."""

    name = "postgres"

    def prepare(self, api: RunApi) -> None:
        self._topic = self.make_topic(api, "t0", 2)

    def start_companions(self, testbed: Testbed) -> None:
        self._database = testbed.database
        self._url = testbed.server.url
        self._database.start()
        with self._database.connect() as connection:
            create_tables(connection, POSTGRES_OWNERS)
            connection.execute(postgres.CREATE)
        options = f"tables = 'public.*, followed.*', snapshot = 'none', password_env = '{PASSWORD_VARIABLE}'"
        with RunApi(self._url, timeout=60) as api:
            api.sql(f"CREATE SOURCE {postgres.SOURCE} FROM POSTGRES '{self._database.url}' WITH ({options})")
            query = f"SELECT state FROM system.sources WHERE name = '{postgres.SOURCE}'"
            eventually(lambda: api.sql(query)["rows"] == [["streaming"]], "the source is captured", START_SECONDS)
            self.route(api, postgres.TABLE, CAPTURED_AND_ROUTED)
        self.declare(RunTopic(f"_changes.{postgres.TABLE}", 1), table=postgres.TABLE)
        testbed.pipeline.start(testbed.url)
        testbed.pipeline.await_running(self._url)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate, connect = self.context, self.seed, self.load.per_second, self._database.connect
        return [
            HttpPublisher("pg-publish", context, seed, rate(8), [self._topic]),
            HttpReader("pg-read", context, seed, rate(8), [self._topic]),
            postgres.PostgresRowWriter("pg-rows-1", context, seed, rate(15), connect),
            postgres.PostgresRowWriter("pg-rows-2", context, seed, rate(15), connect),
            *(
                postgres.PostgresLoadWorker(f"pg-load-{owner}", context, seed, rate(4), connect, owner)
                for owner in POSTGRES_OWNERS
            ),
        ]

    def translate(self, seen: SeenRecord) -> SeenRecord:
        return row_seen(seen) if seen.location.topic.startswith(("_changes.", CAPTURED_AND_ROUTED)) else seen

    def finish(self, api: RunApi) -> None:
        """Wait until everything is captured and routed, replay it, and read what the database holds."""
        replayed = ReplayedSource(self._database, self._url, postgres.SOURCE, all_tables(POSTGRES_OWNERS))
        findings = replayed.findings()
        recorder = self.context.recorder
        inspection = ReplayInspection(recorder.now(), postgres.SOURCE, replayed.transactions, replayed.events, findings)
        recorder.write(inspection)
        await_routed(api, postgres.TABLE, (CAPTURED_AND_ROUTED,))
        postgres.read_rows(recorder, self._database.connect, "pg-final")


SHADOW = "prod"
SHADOW_GROUP = "shadow-members"
SHADOW_PROCESSOR = "shadow-processor"


class ShadowWorkload(Workload):
    """Topics that a shadow copies to another Kafka: with plain records, transactions of which some are aborted, and groups."""

    name = "shadow"

    def prepare(self, api: RunApi) -> None:
        self._source = self.make_topic(api, "in", 3)
        self._target = self.make_topic(api, "out", 2)

    def start_companions(self, testbed: Testbed) -> None:
        self._server = testbed.server
        self._other = testbed.other_kafka
        self._other.start()
        options = "topics = 'shadow.>'"
        with RunApi(testbed.server.url, timeout=60) as api:
            api.sql(f"CREATE SHADOW {SHADOW} TO KAFKA '{self._other.address}' WITH ({options})")
            query = f"SELECT state FROM system.shadows WHERE name = '{SHADOW}'"
            eventually(lambda: api.sql(query)["rows"] == [["live"]], "the shadow is live", START_SECONDS)

    def workers(self) -> Sequence[Worker]:
        context, seed, rate = self.context, self.seed, self.load.per_second
        return [
            LibrdkafkaSender("sh-send", context, seed, rate(20), [self._source]),
            HttpPublisher("sh-publish", context, seed, rate(8), [self._source]),
            Processor("sh-1", context, seed, rate(6), self._source.locations, self._target, SHADOW_PROCESSOR),
            KafkaMember("sh-rd-1", context, seed, rate(5), [self._source], SHADOW_GROUP, "range"),
            HttpMember("sh-http-1", context, seed, rate(4), [self._source], SHADOW_GROUP),
        ]

    def finish(self, api: RunApi) -> None:
        """Wait until everything is copied, and compare it."""
        topics = [topic.name for topic in self.topics]
        compared = ComparedCopy(self._server.kafka, self._other.address, topics, (SHADOW_GROUP, SHADOW_PROCESSOR))
        findings = compared.findings()
        recorder = self.context.recorder
        recorder.write(CopyInspection(recorder.now(), SHADOW, compared.records, compared.offsets, findings))


def row_seen(seen: SeenRecord) -> SeenRecord:
    """Convert an event of a table, or what was routed of it, to the key and value of the row."""
    return change_seen(seen) if seen.location.topic.startswith("_changes.") else routed_seen(seen)


def await_routed(api: RunApi, table: str, topics: Sequence[str]) -> None:
    """Wait until the pipeline has routed all changes of a table."""
    changes = api.sql(f"SELECT count(*) FROM _changes.{table}")["rows"][0][0]
    deadline = time.monotonic() + CAUGHT_UP_SECONDS
    while time.monotonic() < deadline and any(_count(api, topic) < changes for topic in topics):
        time.sleep(0.5)


def _count(api: RunApi, topic: str) -> int:
    try:
        count: int = api.sql(f"SELECT count(*) FROM {topic}")["rows"][0][0]
    except RefusedError:
        return 0
    return count
