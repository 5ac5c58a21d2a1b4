"""The name of a user in the certificate that a client shows."""

from collections.abc import Mapping
from typing import Any

from tailrace.broker.security.settings import SecuritySettings

_KINDS = {"DNS": "DNS", "EMAIL": "email", "URI": "URI"}
"""What Python calls the kinds of other names (`subjectAltName`) that a setting names."""


def name_of_certificate(certificate: Mapping[str, Any], settings: SecuritySettings) -> str | None:
    """Return the name that a client's verified certificate gives it, which is given as by `SSLObject.getpeercert`.

    An empty certificate, one with several common names, or a name that can't be printed names nobody.
    """
    if settings.client_certificates == "off":
        return None
    if settings.certificate_name == "CN":
        names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
        if len(names) != 1:
            return None
    else:
        wanted = _KINDS.get(settings.certificate_name)
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]
    return names[0] if names and names[0] and names[0].isprintable() else None
