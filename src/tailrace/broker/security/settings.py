"""Settings of security: the section `[security]` of the configuration file."""

from typing import Literal

import msgspec

Authentication = Literal["off", "required"]
ClientCertificates = Literal["off", "accepted", "required"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True):
    authentication: Authentication = "off"
    """`required`: whoever sends a request shows who it is, and may do what was granted to it. `off`: everybody may do
    everything."""
    tls_certificate: str | None = None
    """File with the certificate of the server, and those of the authorities between, in PEM. With it both listeners speak TLS.
    It is read again when it changes."""
    tls_key: str | None = None
    """File with the private key of the certificate, in PEM. It is only needed if that file does not have it."""
    client_certificates: ClientCertificates = "off"
    """Whether clients show certificates of their own: `accepted` ones authenticate, like a password; `required` is for all."""
    client_ca: str | None = None
    """File with the certificates of the authorities that sign those of clients, in PEM."""
    certificate_name: str = "CN"
    """What of a client's certificate is the name of its user: `CN`, or `DNS`, `EMAIL` or `URI` of its other names."""
    sasl_mechanisms: tuple[Mechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
    """Mechanisms that Kafka's clients may use. `PLAIN` and `OAUTHBEARER` are offered over TLS only, `OAUTHBEARER` only with an
    `oidc_issuer`."""
    plain_without_tls: bool = False
    """Whether passwords and tokens may be sent without TLS, where everybody on the way can read them."""
    session_seconds: int = 3600
    """How long a login over Kafka's protocol lasts. Clients repeat it by themselves before it ends (KIP-368)."""
    oidc_issuer: str | None = None
    """The issuer of the tokens (JWT) that are accepted, as it stands in them."""
    oidc_audience: str | None = None
    """The audience that tokens must be for."""
    oidc_keys: str | None = None
    """File or `https://` address of the issuer's public keys (JWKS)."""
    oidc_name_claim: str = "sub"
    """The claim of a token that is the name of the principal."""
    oidc_roles_claim: str | None = None
    """The claim of a token that lists roles. Those that exist here are roles of the principal."""
    audit_retention_seconds: int = 30 * 24 * 3600
    """How long records of the audit are kept."""


DEFAULT_SECURITY_SETTINGS = SecuritySettings()
