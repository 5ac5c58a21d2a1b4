"""How the two clusters of a shadow are reached: addresses, TLS and passwords.

Settings have the names and values that librdkafka gives them. The password is read anew for each connection, so that it can be
changed without a restart.
"""

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tailrace.client.credentials import ServerAccess
from tailrace.client.http11 import tls_context
from tailrace.model.address import Address, parse_address
from tailrace.model.server_credentials import SERVER_USER, credentials_of_environment
from tailrace.model.shadow import Shadow
from tailrace.shadow.failures import ShadowError

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CLIENT_ID = "tailrace-shadow"
_DEFAULT_MECHANISM = "PLAIN"
_PASSWORD_MECHANISM = "SCRAM-SHA-256"  # noqa: S105  with which a user logs in at the Tailrace server
_TOKEN_MECHANISM = "OAUTHBEARER"  # noqa: S105
_MILLISECONDS = 1000
_LONGEST_MS = 600_000
_REQUEST_SECONDS = 30.0
_CONNECT_SECONDS = 15.0


class KafkaAccess(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    """What the cluster is called in messages: `the Kafka at kafka-1:9092`."""
    addresses: Sequence[Address]
    client_id: str = _CLIENT_ID
    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    """The SASL mechanism, if the cluster asks who we are."""
    user: str = ""
    password: Callable[[], str] = str
    request_seconds: float = _REQUEST_SECONDS
    connect_seconds: float = _CONNECT_SECONDS


def server_access(address: str, access: ServerAccess | None = None) -> KafkaAccess:
    """Return how the Tailrace server's own Kafka listener is reached.

    A process that the server has started was told so. Others reach it with what they reach the server with over HTTP, `access`:
    both listeners speak TLS, or none, and know the same users.
    """
    given = credentials_of_environment()
    if access is not None and given.certificate is None and given.mechanism is None:
        return _server_access_of(access, parse_address(address))
    return KafkaAccess(
        what="the Tailrace server",
        addresses=[parse_address(address)],
        tls=None if given.certificate is None else tls_context("https:", None, given.client_certificate),
        mechanism=given.mechanism,
        user=SERVER_USER if given.mechanism is not None else "",
        password=lambda: given.token or "",
    )


def _server_access_of(access: ServerAccess, address: Address) -> KafkaAccess:
    secret = access.password if access.token is None else access.token
    mechanism = None if secret is None else _PASSWORD_MECHANISM if access.token is None else _TOKEN_MECHANISM
    return KafkaAccess(
        what="the Tailrace server",
        addresses=[address],
        tls=access.tls_context(),
        mechanism=mechanism,
        user=access.user or "",
        password=lambda: secret or "",
    )


def kafka_access(shadow: Shadow) -> KafkaAccess:
    """Return how the Kafka of a shadow is reached. Raises `ShadowError` if its settings contradict each other."""
    settings = shadow.settings
    default = "plaintext" if shadow.user is None else "sasl_plaintext"
    protocol = settings.get("security.protocol", default).lower()
    if protocol not in _PROTOCOLS:
        raise _bad(shadow, f"security.protocol is {protocol!r}, not one of {', '.join(_PROTOCOLS)}")
    mechanism = None
    if protocol.startswith("sasl"):
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", _DEFAULT_MECHANISM)).upper()
        if mechanism not in MECHANISMS:
            raise _bad(shadow, f"sasl.mechanism is {mechanism!r}, not one of {', '.join(MECHANISMS)}")
        if shadow.user is None:
            raise _bad(shadow, f"security.protocol is {protocol!r}, and there is no user")
    elif shadow.user is not None:
        raise _bad(shadow, f"security.protocol is {protocol!r}, which takes no user; use sasl_{protocol}")
    return KafkaAccess(
        what=f"the Kafka at {shadow.bootstrap}",
        addresses=[parse_address(address) for address in shadow.bootstrap.split(",")],
        client_id=settings.get("client.id", _CLIENT_ID),
        tls=_tls(shadow) if protocol.endswith("ssl") else None,
        mechanism=mechanism,
        user=shadow.user or "",
        password=lambda: _password(shadow),
        request_seconds=_seconds(shadow, "socket.timeout.ms", _REQUEST_SECONDS),
        connect_seconds=_seconds(shadow, "socket.connection.setup.timeout.ms", _CONNECT_SECONDS),
    )


def _tls(shadow: Shadow) -> ssl.SSLContext:
    settings = shadow.settings
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        certificate = settings.get("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(certificate, settings.get("ssl.key.location"))
    except (OSError, ssl.SSLError) as error:
        raise _bad(shadow, f"its certificates can't be read: {error}") from error
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _password(shadow: Shadow) -> str:
    if shadow.password_env is not None:
        password = os.environ.get(shadow.password_env)
        if password is None:
            raise ShadowError(
                f"the environment variable {shadow.password_env} with the password is not set on {socket.gethostname()}",
                "Set it where the shadow is copied: for a shadow that the server copies, in the environment of the server",
                state="failed",
            )
        return password
    if shadow.password_file is not None:
        try:
            return Path(shadow.password_file).read_text().rstrip("\r\n")
        except OSError as error:
            raise ShadowError(
                f"the file with the password can't be read on {socket.gethostname()}: {error}",
                "Put it where the shadow is copied, readable for the user that copies",
                state="failed",
            ) from error
    return ""


def _seconds(shadow: Shadow, name: str, default: float) -> float:
    text = shadow.settings.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= _LONGEST_MS:
        raise _bad(shadow, f"{name} is {text!r}, not a number of milliseconds from 1 to {_LONGEST_MS}")
    return int(text) / _MILLISECONDS


def _bad(shadow: Shadow, why: str) -> ShadowError:
    return ShadowError(
        f"the settings of shadow {shadow.name!r} can't be used: {why}", "Correct them with ALTER SHADOW ... SET", state="failed"
    )
