"""What is stored of passwords, and the check of one: the verifiers of SCRAM (RFC 5802), the only form in which they are kept.

To make or check one takes some milliseconds of a core, on purpose; hashlib gives Python's lock back meanwhile. Nothing here
waits or keeps state.
"""

import hashlib
import hmac
import secrets
import unicodedata

from tailrace.model.errors import UnacceptableCredentialError
from tailrace.model.limits import Limits
from tailrace.model.security import ScramVerifier

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""
DEFAULT_ITERATIONS = 16_384
LEAST_ITERATIONS = 4_096
MOST_ITERATIONS = 16_384
"""The least and the most that Kafka takes."""
_SALT_BYTES = 16
_MAX_SALT_BYTES = 256


def normalized(password: str, limits: Limits) -> bytes:
    """Return the bytes of a password as its verifier is made of them: characters that look alike are one, as in SASLprep."""
    if not password:
        raise UnacceptableCredentialError("the password is empty; choose one")
    prepared = unicodedata.normalize("NFKC", password).encode(errors="surrogatepass")
    if len(prepared) > limits.password_bytes:
        raise UnacceptableCredentialError(
            f"the password has {len(prepared)} bytes, more than password_bytes allows ({limits.password_bytes})"
        )
    return prepared


def make_verifiers(password: bytes) -> tuple[ScramVerifier, ...]:
    """Return a verifier for each mechanism."""
    return tuple(
        verifier_of(mechanism, _salted(mechanism, password, salt, DEFAULT_ITERATIONS), salt, DEFAULT_ITERATIONS)
        for mechanism in MECHANISMS
        for salt in (secrets.token_bytes(_SALT_BYTES),)
    )


def verifier_of(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """Return the verifier of a password that was salted and hashed elsewhere, as Kafka's tools do it."""
    name = MECHANISMS[mechanism]
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise UnacceptableCredentialError(
            f"{iterations} iterations were asked for; there must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    if not 0 < len(salt) <= _MAX_SALT_BYTES or len(salted_password) != hashlib.new(name).digest_size:
        raise UnacceptableCredentialError(f"the salt or the salted password is no value of {mechanism}")
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramVerifier(
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )


def matches(verifier: ScramVerifier, password: bytes) -> bool:
    """Return whether this is the password. Takes the same time whether it is or not."""
    salted = _salted(verifier.mechanism, password, verifier.salt, verifier.iterations)
    found = verifier_of(verifier.mechanism, salted, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


def decoy(mechanism: str, name: str, key: bytes) -> ScramVerifier:
    """Return a verifier that no password matches, always the same for a name: it hides which users exist."""
    salt = hmac.digest(key, f"{mechanism} {name}".encode(errors="replace"), "sha256")[:_SALT_BYTES]
    size = hashlib.new(MECHANISMS[mechanism]).digest_size
    return ScramVerifier(mechanism, DEFAULT_ITERATIONS, salt, secrets.token_bytes(size), secrets.token_bytes(size))


def _salted(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password, salt, iterations)
