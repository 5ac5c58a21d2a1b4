"""The server's side of SCRAM (RFC 5802 and RFC 7677): two messages of the client, and what the server answers to each.

Nothing here waits, and nothing depends on whether the user exists: one that does not has a verifier that no password matches.
There is no channel binding: a client may say that it could do it (`y`), because then nobody on the way can hide from the server
that it did, and one that demands it (`p=`) is refused.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

from tailrace.broker.security.passwords import MECHANISMS
from tailrace.model.errors import AuthenticationError
from tailrace.model.security import ScramVerifier, User

FindVerifier = Callable[[str, str], tuple[User | None, ScramVerifier]]
"""Returns the user of a name and its verifier for a mechanism: `Authenticator.verifier`."""

_FIRST = re.compile(
    r"(?P<header>(?P<flag>[^,]+),(?:a=(?P<authorized>[^,]+))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[^m].*)?)",
    re.DOTALL,
)
_FINAL = re.compile(
    r"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[^mp].*)?),p=(?P<proof>[A-Za-z0-9+/=]+)", re.DOTALL
)
_ESCAPED = {"=2C": ",", "=3D": "="}


class ScramExchange:
    """One login. `first` and `final` are called once each, in this order."""

    def __init__(self, mechanism: str, find: FindVerifier, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._hash = MECHANISMS[mechanism]
        self._find = find
        self._server_nonce = server_nonce
        self.name = ""
        """The name that the client gives, once it has."""
        self.user: User | None = None
        self._verifier: ScramVerifier | None = None
        self._header = b""
        self._client_nonce = b""
        self._nonce = b""
        self._messages = b""

    def first(self, message: bytes) -> bytes:
        """Return the answer to the client's first message, which names the user."""
        found = _match(_FIRST, message)
        flag = found["flag"]
        if flag.startswith("p="):
            raise AuthenticationError("the client demands channel binding, which the server does not offer")
        if flag not in ("n", "y"):
            raise _malformed()
        self.name = _name(found["name"])
        if found["authorized"] is not None and _name(found["authorized"]) != self.name:
            raise AuthenticationError("the client wants to act as another user than the one whose password it has")
        self.user, verifier = self._find(self.name, self._mechanism)
        self._verifier = verifier
        self._header = found["header"].encode()
        self._client_nonce = found["nonce"].encode()
        self._nonce = self._client_nonce + self._server_nonce.encode()
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(verifier.salt), verifier.iterations)
        self._messages = found["bare"].encode() + b"," + answer
        return answer

    def final(self, message: bytes) -> bytes | None:
        """Return the answer to the client's last message, or `None` if it does not prove that the client knows the password."""
        found = _match(_FINAL, message)
        verifier = self._verifier
        if verifier is None:
            raise _malformed()
        if not hmac.compare_digest(_decoded(found["binding"]), self._header):
            raise AuthenticationError("somebody has changed what the client says of channel binding")
        # librdkafka before 2.6.1 puts its own nonce before that of the exchange once more, and Apache Kafka allows it.
        if found["nonce"].encode() not in (self._nonce, self._client_nonce + self._nonce):
            raise AuthenticationError("the client answers to another exchange than this one")
        signed = self._messages + b"," + found["unproven"].encode()
        proof = _decoded(found["proof"])
        signature = hmac.digest(verifier.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise _malformed()
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), verifier.stored_key)
        if not is_right or self.user is None:
            return None
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, signed, self._hash))


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise _malformed()
    return found


def _name(escaped: str) -> str:
    if re.search("=(?!2C|3D)", escaped) or "\0" in escaped:
        raise _malformed()
    return re.sub("=2C|=3D", lambda found: _ESCAPED[found[0]], escaped)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _malformed() from None


def _malformed() -> AuthenticationError:
    return AuthenticationError("the message is not one that SCRAM has at this place")
