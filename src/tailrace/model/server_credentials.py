"""How a process that the server has started gets in: by a secret of this run of the server, and a certificate to trust.

Both come as the first line of the pipe that is the child's stdin (`parent_process.py`), where no other user and no list of
processes shows them. The child puts them into its environment, for the clients in it and for processes that it starts itself.
The certificate is trusted as it is, whatever name it was issued for, because the child connects to an address of this machine.
"""

import os
import secrets
import ssl
from pathlib import Path

import msgspec

TOKEN_VARIABLE = "TAILRACE_TOKEN"  # noqa: S105  the name of a variable
CERTIFICATE_VARIABLE = "TAILRACE_SERVER_CERTIFICATE"
MECHANISM_VARIABLE = "TAILRACE_SERVER_MECHANISM"
CLIENT_CERTIFICATE_VARIABLE = "TAILRACE_CERTIFICATE_FILE"
VARIABLES = (TOKEN_VARIABLE, CERTIFICATE_VARIABLE, MECHANISM_VARIABLE, CLIENT_CERTIFICATE_VARIABLE)
CHILD_CERTIFICATE = "child-certificate.pem"
"""The file of the data folder with the certificate that children show where clients get no connection without one."""
SERVER_USER = "SERVER"
"""The user as which a child logs in over Kafka's protocol, with the token as its password."""

_KEY_VARIABLE = "TAILRACE_KEY_FILE"
_VARIABLE = "TAILRACE_CREDENTIALS_ON_STDIN"
CREDENTIALS_ON_STDIN = {_VARIABLE: "1"}
"""The environment of a `tailrace` command that is to read credentials from its stdin."""
_STDIN = 0
_TOKEN_BYTES = 32
_MOST_BYTES = 64 * 1024


class ServerCredentials(msgspec.Struct, frozen=True, omit_defaults=True):
    token: str | None = None
    """What is sent as a bearer token over HTTP, and as a password over Kafka's protocol, if the server asks who one is."""
    certificate: str | None = None
    """The file with the certificate of the server, if it speaks TLS."""
    mechanism: str | None = None
    """The SASL mechanism for Kafka's protocol."""
    client_certificate: str | None = None
    """The file with the certificate to show and its key, if the server gives no connection without one."""

    def __repr__(self) -> str:
        # Not the token, which would find its way into a log.
        return f"ServerCredentials(certificate={self.certificate!r}, mechanism={self.mechanism!r})"

    def line(self) -> bytes:
        """Return the line that a child reads with `credentials_from_parent`."""
        return msgspec.json.encode(self) + b"\n"

    def enter_environment(self) -> None:
        """Put them into the environment of this process. What a list of processes shows of it does not change."""
        values = (self.token, self.certificate, self.mechanism, self.client_certificate)
        for name, value in zip(VARIABLES, values, strict=True):
            if value is not None:
                os.environ[name] = value
        if self.client_certificate is not None:
            # The key is in the same file.
            os.environ.pop(_KEY_VARIABLE, None)


def new_token() -> str:
    """Return a secret for one run of a server."""
    return f"tlr_server_{secrets.token_urlsafe(_TOKEN_BYTES)}"


def credentials_from_parent() -> ServerCredentials | None:
    """Read the credentials that the parent writes to stdin, if it said so.

    Called once, before anything else reads stdin. Child processes do not inherit the request.
    """
    if os.environ.pop(_VARIABLE, None) is None:
        return None
    line = bytearray()
    # Byte by byte: what follows is for others.
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        byte = os.read(_STDIN, 1)
        if not byte:
            break
        line += byte
    try:
        return msgspec.json.decode(line, type=ServerCredentials)
    except msgspec.DecodeError:
        # The parent has ended.
        return None


def credentials_of_environment() -> ServerCredentials:
    """Return the credentials that a process which a server has started has put into its environment."""
    return ServerCredentials(*map(os.environ.get, VARIABLES))


def leaf_certificate(file: str) -> str:
    """Return the first certificate of a file, as PEM: that of the server itself."""
    text = Path(file).read_text(encoding="ascii", errors="replace")
    begin = text.find(ssl.PEM_HEADER)
    return text[begin : text.find(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)] + "\n"


def pinned_context(file: str) -> ssl.SSLContext:
    """Return a context of a client that trusts the first certificate of a file and no authority, whatever name it is for.

    Raises `OSError` if there is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=leaf_certificate(file))
    return context
