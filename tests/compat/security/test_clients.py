"""Every Kafka client logs in over TLS, each way that it can; is refused where it should be; and goes on when sessions end."""

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tests.compat.contract import Outgoing, Refused
from tests.compat.kinds import KINDS, ClientKind
from tests.compat.login import Login
from tests.compat.process import ClientProcess
from tests.compat.security.conftest import CLOSED, OPEN, SESSION_SECONDS, StartWith
from tests.compat.tools.programs import SECURED_CLIENTS, tool
from tests.integration.security.secured import SecuredServer

pytestmark = pytest.mark.timeout(400)

IN_EVERY_RUN = ("confluent-kafka", "kafka-python", "aiokafka")
PASSWORDS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
WAYS = (*PASSWORDS, "OAUTHBEARER", "certificate")
INEXPRESSIBLE = (("kcat", "OAUTHBEARER"),)
"""It can't be given a token."""
RECORDS = [Outgoing(b"k", b"%d" % number, partition=0) for number in range(3)]
SAID_OTHERWISE = {"kafka-python": "Unable to bootstrap"}
"""What clients say of a wrong password that keep what the server says to themselves. franz-go's producer just tries on."""
LOGS_ONLY = "kafka-python"
"""Whose consumers write to the log that they may not read a topic, and wait."""
TOPIC_AUTHORIZATION_FAILED = 29
"""The code that every client has for a topic without a grant."""
FEW = ("SCRAM-SHA-512", "certificate", "OAUTHBEARER")
"""Ways of `make test`; the others are those of `tests/integration/security` too."""


CLIENTS = tuple(SECURED_CLIENTS)
PROGRAMS = tuple(name for name in CLIENTS if name != "kcat")
"""Clients that live longer than one command."""


def cases(does: str, ways: tuple[str, ...] = (), few: tuple[str, ...] = (), clients: tuple[str, ...] = CLIENTS) -> list[object]:
    """Return the clients with each way as cases of a test. A few ways are for runs of few clients."""

    def case(kind: ClientKind, *way: str) -> object:
        is_of_every_run = kind.name in IN_EVERY_RUN and (not way or way[0] in few)
        is_short = not way or way[0] in few
        mark = tool(SECURED_CLIENTS[kind.name], does, short=is_short, always=is_of_every_run)
        return pytest.param(kind, *way, marks=mark, id="-".join((kind.name, *way)))

    kinds = [kind for kind in KINDS if kind.name in clients]
    if not ways:
        return [case(kind) for kind in kinds]
    return [case(kind, way) for kind in kinds for way in ways if (kind.name, way) not in INEXPRESSIBLE]


@pytest.mark.parametrize(
    ("kind", "way"),
    cases("logs in over TLS by SCRAM, PLAIN, a token or a certificate, sends and reads, and may no more", WAYS, FEW),
)
def test_a_client_logs_in_sends_and_reads_and_is_refused_what_was_not_granted(
    kind: ClientKind, way: str, secured: SecuredServer, logins: dict[str, Login], start_with: StartWith
) -> None:
    client = start_with(kind, logins[way])
    topic = f"{OPEN}.{kind.name}.{way}".lower()
    secured.sql(f'CREATE TOPIC "{topic}"')
    client.produce_idempotent(topic=topic, records=RECORDS)
    assert [each.value for each in client.consume(group=topic, topic=topic, count=3)] == [each.value for each in RECORDS]
    with pytest.raises(Refused) as refused:
        client.produce(topic=CLOSED, records=RECORDS)
    assert refused.value.code == TOPIC_AUTHORIZATION_FAILED, refused.value
    if kind.name == LOGS_ONLY:
        return
    with pytest.raises(Refused) as refused:
        client.consume(group=f"{topic}.closed", topic=CLOSED, count=1)
    assert refused.value.code == TOPIC_AUTHORIZATION_FAILED, refused.value


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(("kind", "way"), cases("is refused with a wrong password, and says so", PASSWORDS, PASSWORDS[:1]))
def test_a_client_with_a_wrong_password_is_refused_and_says_so(
    kind: ClientKind, way: str, logins: dict[str, Login], start_with: StartWith
) -> None:
    client = start_with(kind, msgspec.structs.replace(logins[way], password="wrong"))  # noqa: S106
    with pytest.raises(Refused) as refused:
        if kind.name == "franz-go":
            client.topics()
        else:
            client.produce(topic=f"{OPEN}.orders", records=RECORDS)
    assert SAID_OTHERWISE.get(kind.name, "authentication failed") in f"{refused.value}{client.log}"


class Sessions:
    """Runs of clients over several sessions, side by side."""

    def __init__(self, secured: SecuredServer, login: Login, start: StartWith, kinds: list[ClientKind]) -> None:
        for kind in kinds:
            secured.sql(f'CREATE TOPIC "{self._topic(kind)}"')
        with ThreadPoolExecutor(len(kinds)) as threads:
            self.runs = {kind.name: threads.submit(self._run, kind, start(kind, login), start(kind, login)) for kind in kinds}

    def _topic(self, kind: ClientKind) -> str:
        return f"{OPEN}.{kind.name}.sessions"

    def _run(
        self, kind: ClientKind, reader: ClientProcess, writer: ClientProcess
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return what was sent, and what was read meanwhile."""
        topic = self._topic(kind)
        reader.join(group=topic, topic=topic)
        writer.open_transactions(transactional_id=topic)
        sent: list[bytes | None] = []
        read: list[bytes | None] = []
        until = time.monotonic() + 2.5 * SESSION_SECONDS
        while time.monotonic() < until:
            record = Outgoing(None, b"%d" % len(sent), partition=0)
            writer.begin()
            writer.send(topic=topic, records=[record])
            writer.end(commit=True)
            sent.append(record.value)
            read += [each.value for each in reader.poll(count=1, seconds=20)]
            reader.commit()
        reader.leave()
        return sent, read


@pytest.fixture(scope="module")
def sessions(secured: SecuredServer, logins: dict[str, Login], start_with: StartWith, all_clients: bool) -> Sessions:
    kinds = [kind for kind in KINDS if kind.name in (PROGRAMS if all_clients else IN_EVERY_RUN) and not kind.missing()]
    return Sessions(secured, logins["SCRAM-SHA-512"], start_with, kinds)


@pytest.mark.parametrize("kind", cases("sends and reads on when its session ends and it has to log in again", clients=PROGRAMS))
def test_a_client_goes_on_when_its_session_ends(kind: ClientKind, sessions: Sessions) -> None:
    sent, read = sessions.runs[kind.name].result()
    assert read == sent
