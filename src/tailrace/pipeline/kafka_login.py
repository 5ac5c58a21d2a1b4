"""How Spark's Kafka connector logs in at the server, whose Kafka listener speaks TLS if the HTTP listener does.

The options that Spark gets, and shows, have no secret: Kafka's clients read it themselves from the environment of Java, which
has it from the process that has started it (`EnvVarConfigProvider`, since Kafka 3.5).
"""

import os

from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import PASSWORD, ServerAccess
from tailrace.model.server_credentials import CERTIFICATE_VARIABLE, MECHANISM_VARIABLE, SERVER_USER, TOKEN_VARIABLE
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.errors import OptionError

_MECHANISM = "SCRAM-SHA-256"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def kafka_login(server: ServerAddress) -> dict[str, str]:
    """Return settings of Kafka's clients. Raises `OptionError` if they can't log in with what there is."""
    access = ServerAccess(server.full_url, ConnectionConfig(**server.source.settings()))
    is_tls = access.url.startswith("https:")
    mechanism = os.environ.get(MECHANISM_VARIABLE)
    if mechanism is not None:
        # A process that the server, or `tailrace up`, has started.
        user, variable = SERVER_USER, TOKEN_VARIABLE
    elif access.user is not None:
        user, variable = access.user, server.login.password_env or PASSWORD
        mechanism = _MECHANISM
    elif access.token is not None:
        raise OptionError(
            "real time reaches the server by Spark's Kafka connector, which can't log in with a token; give --user and"
            " --password-file, or choose --latency batch"
        )
    settings = _tls(access) if is_tls else {}
    if mechanism is None:
        return {**settings, "security.protocol": "SSL"} if is_tls else {}
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    name = user.replace("\\", "\\\\").replace('"', '\\"')
    return {
        **settings,
        "security.protocol": "SASL_SSL" if is_tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "config.providers": "env",
        "config.providers.env.class": _PROVIDER,
        "sasl.jaas.config": f'{module} required username="{name}" password="${{env:{variable}}}";',
    }


def share_password(server: ServerAddress) -> None:
    """Put a password that is not in the environment there, before Java is started, which inherits it."""
    if server.login.password_env is None:
        access = ServerAccess(server.full_url, ConnectionConfig(**server.source.settings()))
        if access.password is not None:
            os.environ[PASSWORD] = access.password


def _tls(access: ServerAccess) -> dict[str, str]:
    pinned = os.environ.get(CERTIFICATE_VARIABLE)
    trusted = {"ssl.truststore.type": "PEM"}
    if access.ca_file is not None:
        return {**trusted, "ssl.truststore.location": access.ca_file}
    if pinned is not None:
        # The certificate of the server itself, whatever name it was issued for.
        return {**trusted, "ssl.truststore.location": pinned, "ssl.endpoint.identification.algorithm": ""}
    return {}
