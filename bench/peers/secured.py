"""Tailrace and Apache Kafka that demand authentication: SCRAM-SHA-512, over TLS or not, with the same user and the same rights.

Each has an administrator before it starts. That makes the user that clients log in as, and grants it what they need, by Kafka's
own requests.
"""

import time
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.peers.kafka import KafkaPeer
from bench.peers.login import MECHANISM, Account, can_log_in
from bench.peers.servers import PeerFailure, TailracePeer, free_address
from tailrace.cli.init import make_administrator
from tailrace.model.address import Address
from tailrace.model.commit import Durability
from tailrace.tls.authority import CertificateAuthority

USER = "bench"
_ADMINISTRATOR = "root"
_PASSWORD = "the same for everybody"  # noqa: S105  of servers that live for a minute
_ITERATIONS = 4_096
"""Kafka's default. They cost the client at a login, and the server nothing."""
_ANY = "*"
_RIGHTS = (
    *(
        (ResourceType.TOPIC, each)
        for each in (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
    ),
    (ResourceType.GROUP, AclOperation.READ),
)
_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 0.05


class AuthenticatedTailracePeer(TailracePeer):
    """Tailrace with authentication and without TLS."""

    def __init__(self, folder: Path, durability: Durability, authority: str = "", tls: str = "") -> None:
        self._account = Account(_ADMINISTRATOR, _PASSWORD, authority)
        self._data = folder / "data"
        super().__init__(folder, durability, _REQUIRED + tls, partial(can_log_in, account=self._account))
        self.client_settings = Account(USER, _PASSWORD, authority).client_settings

    def start(self) -> float:
        """Start the server. To make its administrator does not count."""
        make_administrator(self._data, _ADMINISTRATOR, _PASSWORD, force=False)
        seconds = super().start()
        make_user(self.address, self._account)
        return seconds


class SecuredTailracePeer(AuthenticatedTailracePeer):
    """Tailrace with authentication and TLS."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        certificate, key, authority = _certificates(folder)
        super().__init__(folder, durability, str(authority), f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n')


class SecuredKafkaPeer(KafkaPeer):
    """Apache Kafka with the same: its authorizer is on, and a key store of a PEM file has its certificate.

    It has a second listener, for itself, without TLS.
    """

    def __init__(self, jars: Path, folder: Path, durability: Durability) -> None:
        certificate, key, authority = _certificates(folder)
        store = folder / "keystore.pem"
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        self._account = Account(_ADMINISTRATOR, _PASSWORD, str(authority))
        address, internal, controller = free_address(), free_address(), free_address()
        both = f"INTERNAL://{internal},SECURED://{address}"
        settings = {
            "listeners": f"{both},CONTROLLER://{controller}",
            "advertised.listeners": both,
            "controller.quorum.voters": f"0@{controller}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": store,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The broker itself comes by the listeners that ask nobody.
            "super.users": f"User:{_ADMINISTRATOR};User:ANONYMOUS",
        }
        scram = ("--add-scram", f"{MECHANISM}=[name={_ADMINISTRATOR},password={_PASSWORD}]")
        super().__init__(jars, folder, durability, address, settings, scram, partial(can_log_in, account=self._account))
        self.client_settings = Account(USER, _PASSWORD, str(authority)).client_settings

    def start(self) -> float:
        seconds = super().start()
        make_user(self.address, self._account)
        return seconds


_REQUIRED = '[security]\nauthentication = "required"\n'
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def make_user(address: Address, administrator: Account) -> None:
    """Make the user of clients and grant it what they need. Wait until it counts."""
    admin = AdminClient({"bootstrap.servers": str(address), **administrator.client_settings})
    try:
        made = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        wanted = UserScramCredentialUpsertion(USER, made, _PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(_ANSWER_SECONDS)
        for granted in admin.create_acls([_grant(*right) for right in _RIGHTS]).values():
            granted.result(_ANSWER_SECONDS)
    except KafkaException as error:
        raise PeerFailure(f"the user of clients could not be made: {error}") from error
    deadline = time.monotonic() + _ANSWER_SECONDS
    user = Account(USER, _PASSWORD, administrator.authority)
    while not can_log_in(address, user):
        if time.monotonic() > deadline:
            raise PeerFailure(f"the user of clients could not log in within {_ANSWER_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _grant(kind: ResourceType, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, _ANY, ResourcePatternType.LITERAL, f"User:{USER}", _ANY, operation, AclPermissionType.ALLOW)


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Make the certificate of a server. Return its file, that of its key, and that of its authority."""
    authority = CertificateAuthority.create(folder / "tls")
    return *authority.issue_for_server(["127.0.0.1"]), authority.file
