"""SASL as a client: what is sent to a broker to say who we are, by PLAIN, SCRAM and OAUTHBEARER.

RFC 4616, 5802, 7677 and 7628.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from tailrace.shadow.failures import ShadowError

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NONCE_BYTES = 24
_NO_CHANNEL_BINDING = "n,,"
_LEAST_ROUNDS, _MOST_ROUNDS = 4096, 1_000_000


def authenticate(mechanism: str, user: str, password: str) -> Generator[bytes, bytes, None]:
    """Yield what is sent, and take what the broker answers. Raises `ShadowError` if the broker can't prove who it is."""
    if mechanism == "PLAIN":
        yield f"\0{user}\0{password}".encode()
        return
    if mechanism == "OAUTHBEARER":
        # The password is a token here, which says itself whose it is.
        yield f"{_NO_CHANNEL_BINDING}\x01auth=Bearer {password}\x01\x01".encode()
        return
    yield from _scram(_HASHES[mechanism], user, password)


def _scram(algorithm: str, user: str, password: str) -> Generator[bytes, bytes, None]:
    nonce = base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = (yield (_NO_CHANNEL_BINDING + first).encode()).decode(errors="replace")
    given = _fields(challenge)
    try:
        salt, rounds, full_nonce = base64.b64decode(given["s"]), int(given["i"]), given["r"]
    except (KeyError, ValueError) as error:
        raise _refused(challenge) from error
    if not full_nonce.startswith(nonce) or not _LEAST_ROUNDS <= rounds <= _MOST_ROUNDS:
        raise _refused(challenge)
    last = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={full_nonce}"
    signed = ",".join((first, challenge, last)).encode()
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = (yield f"{last},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    try:
        proved = base64.b64decode(_fields(answer)["v"])
    except (KeyError, ValueError) as error:
        raise _refused(answer) from error
    if not hmac.compare_digest(proved, expected):
        raise ShadowError(
            "the broker could not prove that it knows the password",
            "Check that the addresses of the shadow are those of your Kafka",
            state="failed",
        )


def _fields(message: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in message.split(",") if "=" in field)


def _refused(message: str) -> ShadowError:
    shown = _fields(message).get("e", "it sent a message that can't be understood")
    return ShadowError(f"the broker refused the user: {shown}", "Check the user and the password of the shadow", state="failed")
