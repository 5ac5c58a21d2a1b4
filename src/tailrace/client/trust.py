"""TLS: whom a client trusts, and what it says when it can't."""

import ssl

import httpx

from tailrace.model.errors import ConfigurationError, TlsError

_NO_KNOWN_AUTHORITY = frozenset((18, 19, 20, 21))
"""OpenSSL's codes for a certificate whose authority is not among those that are trusted."""
_ADVICE = ". Name the file with its authority's certificate: as ca_file, or in SSL_CERT_FILE"
_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The connection ended meanwhile, which says nothing about the server."""


def trusting(url: str, ca_file: str | None) -> ssl.SSLContext | None:
    """Trusts the authorities of this file, or else those of the environment. `None` for an address without TLS."""
    if not url.startswith("https"):
        return None
    try:
        return httpx.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        named = "SSL_CERT_FILE or SSL_CERT_DIR" if ca_file is None else f"ca_file is {ca_file!r}, which"
        raise ConfigurationError(f"{named} can't be read as certificates in the form of PEM: {error}") from error


def tls_error(url: str, error: BaseException) -> TlsError | None:
    """What kept a connection from being made, if it was TLS."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _BROKEN_OFF):
        return None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return TlsError(f"there is no TLS with {url}: {cause.reason or cause}. Is it an address for http://?")
    advice = _ADVICE if cause.verify_code in _NO_KNOWN_AUTHORITY else ""
    return TlsError(f"the certificate of {url} is not trusted: {cause.verify_message.rstrip('.')}{advice}")
