"""What a client logs in with: given to its process in one variable, and said in each client's own settings."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

VARIABLE = "COMPAT_LOGIN"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
FIXED_TOKEN = "tailrace.compat.FixedToken"  # noqa: S105
"""The class of tests/compat/java that sends a token as it is."""


class Login(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By SASL over TLS, or, without a mechanism, by a certificate over TLS."""

    ca: str
    """The file of the authority that the client trusts."""
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token: str = ""
    certificate: str | None = None
    key: str | None = None

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def environment(self) -> dict[str, str]:
        """Return the variables of a process that is to log in so."""
        return {VARIABLE: msgspec.json.encode({**msgspec.to_builtins(self), "properties": self.java()}).decode()}

    def rdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka, without a token, which it asks its program for."""
        settings = {"security.protocol": self.protocol, "ssl.ca.location": self.ca}
        if self.mechanism is not None:
            settings["sasl.mechanism"] = self.mechanism
        if self.user:
            settings |= {"sasl.username": self.user, "sasl.password": self.password}
        if self.certificate is not None and self.key is not None:
            settings |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.key}
        return settings

    def python(self) -> dict[str, Any]:
        """Return the settings that kafka-python and aiokafka share, without a token."""
        trust = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            trust.load_cert_chain(self.certificate, self.key)
        settings: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": trust}
        if self.mechanism is not None:
            settings["sasl_mechanism"] = self.mechanism
        if self.user:
            settings |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return settings

    def java(self) -> dict[str, str]:
        """Return the properties of Kafka's own clients and tools."""
        properties = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": Path(self.ca).read_text(),
        }
        if self.certificate is not None and self.key is not None:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(self.certificate).read_text(),
                "ssl.keystore.key": Path(self.key).read_text(),
            }
        if self.mechanism is not None:
            given = f'token="{self.token}"' if self.token else f'username="{self.user}" password="{self.password}"'
            properties |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{_MODULES[self.mechanism]} required {given};",
            }
        if self.token:
            properties["sasl.login.callback.handler.class"] = FIXED_TOKEN
        return properties


def login_of(environment: Mapping[str, str] = os.environ) -> Login | None:
    """Return what this process is to log in with, if it is to log in."""
    text = environment.get(VARIABLE)
    return None if text is None else msgspec.json.decode(text, type=Login)
