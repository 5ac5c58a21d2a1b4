"""Kafka's command line over SASL_SSL: ACLs, passwords and quotas of users, and what each changes for a client."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.clients.confluent import Adapter
from tests.compat.contract import Outgoing
from tests.compat.login import Login
from tests.compat.security.conftest import USER
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, tool
from tests.integration.security.secured import SecuredServer

pytestmark = pytest.mark.timeout(400)

TOPIC = "ledger.orders"
"""Nobody was granted anything on it."""
ALLOWED, FORBIDDEN, NOT_KNOWN = 0, 29, -169


@pytest.fixture(scope="module")
def kafka(secured: SecuredServer, administrator: Login, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return command_line(secured, administrator, tmp_path_factory.mktemp("commands") / "administrator.properties")


def command_line(secured: SecuredServer, login: Login, file: Path) -> CommandLine:
    """Return Kafka's scripts for somebody who logs in."""
    lines = (f"{name}={value.strip()}" for name, value in login.java().items())
    file.write_text("\n".join(line.replace("\n", "\\n") for line in lines))
    return CommandLine(secured.process.kafka, file)


@pytest.fixture(scope="module", autouse=True)
def topic(secured: SecuredServer) -> None:
    secured.sql(f"CREATE TOPIC {TOPIC}")


Try = Callable[..., int]


@pytest.fixture
def produce(secured: SecuredServer, logins: dict[str, Login]) -> Try:
    """Sends a record to the topic as the user, by librdkafka; returns the code of its error."""

    def produce(login: Login = logins["SCRAM-SHA-512"]) -> int:
        client = Adapter(secured.process.kafka, login=login)
        try:
            client.produce(TOPIC, [Outgoing(None, b"v")])
        except Exception as error:  # noqa: BLE001  of which kind is what is tested
            return client.code_of(error)
        return ALLOWED

    return produce


@tool(
    COMMANDS,
    "`kafka-acls` over SASL_SSL: grants by literal and prefixed names, denials, hosts; listed, removed, and obeyed",
    short=True,
)
def test_acls_are_added_listed_and_removed_and_obeyed(kafka: CommandLine, produce: Try) -> None:
    principal = ("--allow-principal", f"User:{USER}")
    write = ("--operation", "Write")
    literal, prefixed = ("--topic", TOPIC), ("--topic", "ledger.", "--resource-pattern-type", "prefixed")

    def add(*arguments: str) -> None:
        kafka.lines("kafka-acls", "--add", *arguments)

    def remove(*arguments: str) -> None:
        kafka.lines("kafka-acls", "--remove", "--force", *arguments)

    assert produce() == FORBIDDEN
    add(*principal, *write, *literal)
    assert produce() == ALLOWED
    listed = "\n".join(kafka.lines("kafka-acls", "--list", *literal))
    assert f"name={TOPIC}, patternType=LITERAL" in listed
    assert f"principal=User:{USER}, host=*, operation=WRITE, permissionType=ALLOW" in listed
    remove(*principal, *write, *literal)
    assert produce() == FORBIDDEN
    add(*principal, *write, *prefixed)
    assert produce() == ALLOWED
    assert "patternType=PREFIXED" in "\n".join(kafka.lines("kafka-acls", "--list", *prefixed))
    add("--deny-principal", f"User:{USER}", "--deny-host", "127.0.0.1", *write, *literal)
    assert produce() == FORBIDDEN
    matched = "\n".join(kafka.lines("kafka-acls", "--list", "--topic", TOPIC, "--resource-pattern-type", "match"))
    assert f"principal=User:{USER}, host=127.0.0.1, operation=WRITE, permissionType=DENY" in matched
    assert "patternType=PREFIXED" in matched
    remove("--deny-principal", f"User:{USER}", "--deny-host", "127.0.0.1", *write, *literal)
    assert produce() == ALLOWED
    remove(*principal, *write, *prefixed)
    add(*principal, "--allow-host", "192.0.2.1", *write, *literal)
    assert produce() == FORBIDDEN
    remove(*principal, "--allow-host", "192.0.2.1", *write, *literal)
    assert kafka.lines("kafka-acls", "--list", *literal) == []


@tool(
    COMMANDS,
    "`kafka-configs` over SASL_SSL: SCRAM passwords are set, shown, changed and deleted, and count for a client",
    short=False,
)
def test_passwords_are_set_changed_and_deleted(
    kafka: CommandLine, produce: Try, administrator: Login, secured: SecuredServer, tmp_path: Path
) -> None:
    user = ("--entity-type", "users", "--entity-name", "carol")

    def carol(password: str, mechanism: str = "SCRAM-SHA-256") -> Login:
        return Login(ca=administrator.ca, mechanism=mechanism, user="carol", password=password)

    kafka.lines("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=first-secret]")
    assert "SCRAM-SHA-256=iterations=8192" in "\n".join(kafka.lines("kafka-configs", "--describe", *user))
    assert produce(carol("first-secret")) == FORBIDDEN
    assert produce(carol("first-secrets")) == NOT_KNOWN
    kafka.lines("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=second-secret]")
    assert produce(carol("first-secret")) == NOT_KNOWN
    assert produce(carol("second-secret")) == FORBIDDEN
    # Who is no administrator changes nobody's password, not even by the tool.
    theirs = command_line(secured, carol("second-secret"), tmp_path / "carol.properties")
    refused = theirs.refused("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=third-secret]")
    assert "authorization" in refused.lower()
    kafka.lines("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert produce(carol("second-secret")) == NOT_KNOWN


@tool(COMMANDS, "`kafka-configs` over SASL_SSL: quotas of a user, which only administrators set")
def test_quotas_of_users_are_set_by_administrators_only(
    kafka: CommandLine, secured: SecuredServer, logins: dict[str, Login], tmp_path: Path
) -> None:
    user = ("--entity-type", "users", "--entity-name", USER)
    theirs = command_line(secured, logins["PLAIN"], tmp_path / "user.properties")
    refused = theirs.refused("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=1000000")
    assert "authorization" in refused.lower()
    kafka.lines("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=1000000")
    assert "producer_byte_rate=1000000.0" in "\n".join(kafka.lines("kafka-configs", "--describe", *user))
    kafka.lines("kafka-configs", "--alter", *user, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in "\n".join(kafka.lines("kafka-configs", "--describe", *user))
