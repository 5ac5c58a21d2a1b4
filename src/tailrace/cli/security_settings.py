"""Checks of the section `[security]`, and of what a server that other machines can reach must have.

A setting that would have no effect, or that leaves nobody a way in, is an error at the start: it is worse to believe in a
protection that is not there.
"""

from collections.abc import Sequence

import msgspec

from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.address import Address
from tailrace.model.errors import ConfigurationError

CERTIFICATE_NAMES = ("CN", "DNS", "EMAIL", "URI")
_OVER_TLS_ONLY = ("PLAIN", "OAUTHBEARER")


def check_values(security: SecuritySettings) -> None:
    """Raise `ConfigurationError` for a value that can't be right, whatever the others are."""
    if security.certificate_name not in CERTIFICATE_NAMES:
        names = " or ".join(f'"{name}"' for name in CERTIFICATE_NAMES)
        raise ConfigurationError(f"security.certificate_name is {security.certificate_name!r}; it must be {names}")
    if security.session_seconds < 1:
        raise ConfigurationError(f"security.session_seconds is {security.session_seconds}; it must be at least 1")
    keys = security.oidc_keys
    if keys is not None and "://" in keys and not keys.startswith("https://"):
        raise ConfigurationError(f"security.oidc_keys is {keys!r}; it must be a file or an address that begins with https://")


def check_combinations(security: SecuritySettings) -> None:
    """Raise `ConfigurationError` for settings that have no effect without others, or let nobody in."""
    if security.tls_key is not None and security.tls_certificate is None:
        raise ConfigurationError("security.tls_key has no effect without tls_certificate; set both, or none")
    _check_client_certificates(security)
    _check_oidc(security)
    if security.authentication == "required":
        _check_ways_in(security)


def _check_client_certificates(security: SecuritySettings) -> None:
    wanted = security.client_certificates
    if wanted == "off":
        if security.client_ca is not None:
            raise ConfigurationError(
                'security.client_ca has no effect while client_certificates is "off"; set that to "accepted" or "required"'
            )
        return
    if security.tls_certificate is None:
        raise ConfigurationError(
            f'security.client_certificates is "{wanted}", and clients show certificates over TLS only; set tls_certificate'
        )
    if security.client_ca is None:
        raise ConfigurationError(
            f'security.client_certificates is "{wanted}"; set client_ca to the file of the authorities that sign them'
        )
    if security.authentication == "off":
        raise ConfigurationError(
            f'security.client_certificates is "{wanted}" and authentication is "off", so whoever has one may do everything; set'
            ' authentication to "required"'
        )


def _check_oidc(security: SecuritySettings) -> None:
    others = {
        "oidc_audience": security.oidc_audience,
        "oidc_keys": security.oidc_keys,
        "oidc_roles_claim": security.oidc_roles_claim,
    }
    if security.oidc_issuer is None:
        for name, value in others.items():
            if value is not None:
                raise ConfigurationError(f"security.{name} has no effect without oidc_issuer")
        return
    for name in ("oidc_audience", "oidc_keys"):
        if others[name] is None:
            raise ConfigurationError(f"security.oidc_issuer is set; set {name} too, because tokens can't be checked without it")


def _check_ways_in(security: SecuritySettings) -> None:
    """Raise unless Kafka's clients have a way to authenticate."""
    if security.client_certificates != "off":
        return
    mechanisms = security.sasl_mechanisms
    if not mechanisms:
        raise ConfigurationError(
            "security.sasl_mechanisms is empty and client_certificates is off, so no Kafka client can authenticate"
        )
    usable = security.tls_certificate is not None or security.plain_without_tls
    if not usable and all(mechanism in _OVER_TLS_ONLY for mechanism in mechanisms):
        raise ConfigurationError(
            f"security.sasl_mechanisms has only {', '.join(mechanisms)}, which need TLS: set tls_certificate, add"
            " SCRAM-SHA-256, or set plain_without_tls"
        )


def switched_off(security: SecuritySettings, *, no_authentication: bool, no_tls: bool) -> SecuritySettings:
    """Return the settings without what is switched off by name."""
    if no_authentication:
        security = msgspec.structs.replace(security, authentication="off")
    if no_tls:
        security = msgspec.structs.replace(security, tls_certificate=None, tls_key=None)
    return security


def check_exposure(
    listeners: Sequence[Address], security: SecuritySettings, *, allow_remote: bool, no_authentication: bool, no_tls: bool
) -> None:
    """Raise unless a server that others can reach is protected, or does without each protection because it was told to."""
    exposed = [listener for listener in listeners if not listener.is_loopback]
    if not exposed:
        return
    reached = f"{exposed[0]} can be reached from other machines"
    if not allow_remote:
        raise ConfigurationError(f"{reached}; pass --allow-remote if that is what you want, or listen on 127.0.0.1")
    missing, flags = [], []
    if security.authentication == "off" and not no_authentication:
        missing.append("no authentication, so whoever reaches it may read and write everything")
        flags.append("--no-authentication")
    if security.tls_certificate is None and not no_tls:
        missing.append("no TLS, so whoever is on the way can read what is sent, passwords too")
        flags.append("--no-tls")
    if missing:
        raise ConfigurationError(
            f"{reached}, and there is {'; and '.join(missing)}. `tailrace init --data DIR` sets up both; or pass"
            f" {' and '.join(flags)} if you trust that network"
        )
