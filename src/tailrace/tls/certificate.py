"""The certificate of the server and the authorities of its clients, as files that are read again when they change.

A new file is tried by a handshake in memory before it is used. One that is broken, belongs to another key or has expired is
reported, and the one before stays in use. Connections that are open keep what they began with.
"""

import asyncio
import logging
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import ConfigurationError
from tailrace.model.server_credentials import pinned_context

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; TLS 1.3 has its own. All have forward secrecy."""
_DAY_SECONDS = 24 * 3600
_SOON_DAYS = 14
_WORLD_READABLE = 0o004
_EXPIRED = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""
_HANDSHAKE_TURNS = 10


class _FileStamp(NamedTuple):
    """What changes when a file is written or replaced."""

    modified_ns: int
    size: int
    inode: int


class ServerCertificate:
    """Has the context for the next handshake in `context`. Raises `ConfigurationError` if the files can't be used."""

    def __init__(self, security: SecuritySettings) -> None:
        self._security = security
        named = (security.tls_certificate, security.tls_key, security.client_ca)
        self._files = [Path(name) for name in named if name is not None]
        self._stamps = self._read_stamps()
        self.context, self._ends_at = load_context(security)
        self._warned_at = 0.0
        self._also_trusted = ""
        self._following: asyncio.Task[None] | None = None

    def trust(self, certificate: str) -> None:
        """Give clients a connection that show this certificate, besides those of `client_ca`. Called before the first one."""
        self._also_trusted = certificate
        self.context.load_verify_locations(cadata=certificate)

    def start(self) -> None:
        """Begin to look for changes of the files."""
        self._warn_of_key()
        self._warn_of_end()
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="server-certificate")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following

    def reload_if_changed(self) -> bool:
        """Read the files again if one of them has changed. Return whether another certificate is used from now on."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        # Taken before the files are read: what changes meanwhile is read the next time.
        self._stamps = stamps
        try:
            context, ends_at = load_context(self._security)
            if self._also_trusted:
                context.load_verify_locations(cadata=self._also_trusted)
            if ends_at <= time.time():
                raise ConfigurationError(f"the certificate in {self._security.tls_certificate} has expired")
        except ConfigurationError as error:
            _log.error("the TLS certificate has changed and can't be used, so the one before stays in use: %s", error)
            return False
        self.context, self._ends_at = context, ends_at
        self._warned_at = 0.0
        _log.warning("new connections use the TLS certificate that %s has now", self._security.tls_certificate)
        return True

    def _read_stamps(self) -> list[_FileStamp | None]:
        return [_stamp(file) for file in self._files]

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.reload_if_changed()
            self._warn_of_end()

    def _warn_of_end(self) -> None:
        now = time.time()
        days = (self._ends_at - now) / _DAY_SECONDS
        if days < _SOON_DAYS and now - self._warned_at > _DAY_SECONDS:
            self._warned_at = now
            file = self._security.tls_certificate
            if days > 0:
                _log.warning("the TLS certificate in %s expires in %.1f days; put a new one there", file, days)
            else:
                _log.error("the TLS certificate in %s has expired, and clients reject it; put a new one there", file)

    def _warn_of_key(self) -> None:
        file = Path(self._security.tls_key or self._security.tls_certificate or "")
        with suppress(OSError):
            if file.stat().st_mode & _WORLD_READABLE:
                _log.warning("every user of this machine can read the private key in %s; make it `chmod 600`", file)


def load_context(security: SecuritySettings) -> tuple[ssl.SSLContext, float]:
    """Return a context with the certificate, and when that expires, as Unix time."""
    certificate, key = security.tls_certificate or "", security.tls_key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Making tickets takes the server as long as the signature that one of them saves it later.
    context.num_tickets = 0
    _check_readable(certificate, key, security.client_ca)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigurationError(_why_unusable(error, certificate, key)) from error
    if security.client_certificates != "off" and security.client_ca is not None:
        try:
            context.load_verify_locations(security.client_ca)
        except ssl.SSLError as error:
            raise ConfigurationError(f"{security.client_ca} (client_ca) has no certificate as PEM in it") from error
        context.verify_mode = ssl.CERT_REQUIRED if security.client_certificates == "required" else ssl.CERT_OPTIONAL
        # A resumed session would outlive the certificate that it began with, and the trust in its authority.
        context.options |= ssl.OP_NO_TICKET
    return context, _end_of(context, certificate)


def _check_readable(*files: str | None) -> None:
    for file in files:
        if file is not None:
            try:
                with Path(file).open("rb"):
                    pass
            except OSError as error:
                raise ConfigurationError(f"can't read {file} of [security]: {error.strerror}") from error


def _no_password() -> str:
    raise ConfigurationError("the private key of [security] has a password; write it to a file without one (`openssl pkey`)")


def _why_unusable(error: ssl.SSLError, certificate: str, key: str | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key in {key or certificate} does not belong to the first certificate in {certificate}"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"the certificate in {certificate} is too weak ({error.reason}); use RSA with 2,048 bits or more, or P-256"
    files = certificate if key is None else f"{certificate} and {key}"
    return f"{files} have no certificate with its private key as PEM in them ({error.reason or error})"


def _end_of(context: ssl.SSLContext, file: str) -> float:
    """Return when the certificate of a context expires, 0 if it has. Finds out by a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = pinned_context(file).wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_HANDSHAKE_TURNS):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                server.do_handshake()
        except ssl.SSLCertVerificationError as error:
            if error.verify_code == _EXPIRED:
                return 0.0
            raise ConfigurationError(f"clients would reject the certificate in {file}: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise ConfigurationError(f"no TLS connection can be made with the certificate in {file}: {error}") from error
        else:
            found = client.getpeercert() or {}
            return float(ssl.cert_time_to_seconds(str(found["notAfter"])))
    raise ConfigurationError(f"no TLS connection can be made with the certificate in {file}")


def _stamp(file: Path) -> _FileStamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return _FileStamp(found.st_mtime_ns, found.st_size, found.st_ino)
