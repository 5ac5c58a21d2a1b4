"""The public keys of an OIDC issuer: read from a JWKS document (RFC 7517), kept, and read again when they may have changed.

A token names its key. If that is not known the document is read again, at most once in 30 seconds, whatever tokens arrive: a
key that was rotated is found, and a storm of invented names costs one read. What a key is for follows from its type alone, so a
token can't choose the algorithm by which it is checked.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tailrace.model.clock import Clock
from tailrace.model.limits import KIB

MAX_DOCUMENT_BYTES = 256 * KIB
_MAX_KEYS = 100
_MAX_KEY_ID_LENGTH = 256
_MIN_RSA_BITS = 2048
_MAX_RSA_BITS = 8192
_PAUSE_SECONDS = 30.0
"""The least time between two reads."""
_FRESH_SECONDS = 600.0
"""After how long the document is read again, because the issuer may have withdrawn a key."""
_USABLE_SECONDS = 24 * 3600.0
"""How long keys count while the document can't be read again."""
_RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_ALGORITHMS: Mapping[tuple[str, str | None], frozenset[str]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset(("ES256",)),
    ("EC", "P-384"): frozenset(("ES384",)),
    ("OKP", "Ed25519"): frozenset(("EdDSA",)),
}
"""The algorithms of each type of key and curve. All have public keys; none takes a password as its key."""

_log = logging.getLogger(__name__)


class KeySource(Protocol):
    """Where the document is."""

    @property
    def name(self) -> str:
        """What it is called in the log; nothing of it is secret."""

    def read(self) -> bytes:
        """Return the document. Called in a thread; takes a bounded time and at most `MAX_DOCUMENT_BYTES`.

        Raises `OSError` or `ValueError`, whose text may be logged.
        """


class FileKeys:
    """A JWKS document in a file."""

    def __init__(self, path: str) -> None:
        self.name = path

    def read(self) -> bytes:
        with Path(self.name).open("rb") as file:
            document = file.read(MAX_DOCUMENT_BYTES + 1)
        check_size(document)
        return document


class SigningKey(NamedTuple):
    key_id: str | None
    algorithms: frozenset[str]
    key: Any
    """The public key, of the library cryptography."""


class SigningKeys:
    """The keys of one issuer. Used on the event loop."""

    def __init__(self, source: KeySource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._keys: Sequence[SigningKey] = ()
        self._read_at: float | None = None
        """When the document was last read and understood."""
        self._tried_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self.reads = 0
        self.failures = 0
        """Reads that failed, or found nothing that is a key."""

    async def find(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        """Return the key of this name for an algorithm. A token may leave the name out if there is only one key for it."""
        if self._read_at is not None and self._clock.monotonic() - self._read_at > _FRESH_SECONDS:
            self._start_reading()
        found = self._known(key_id, algorithm)
        if found is None:
            self._start_reading()
            if self._reading is not None:
                # Others wait for the same read, so it goes on when one of them is cancelled.
                await asyncio.shield(self._reading)
            found = self._known(key_id, algorithm)
        return found

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _known(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        if self._read_at is None or self._clock.monotonic() - self._read_at > _USABLE_SECONDS:
            return None
        fitting = [key for key in self._keys if algorithm in key.algorithms and key_id in (None, key.key_id)]
        return fitting[0] if len(fitting) == 1 else None

    def _start_reading(self) -> None:
        now = self._clock.monotonic()
        if self._reading is None and (self._tried_at is None or now - self._tried_at >= _PAUSE_SECONDS):
            self._tried_at = now
            self._reading = asyncio.create_task(self._read(), name="tailrace-oidc-keys")

    async def _read(self) -> None:
        self.reads += 1
        try:
            self._keys = await asyncio.to_thread(lambda: parse_keys(self._source.read()))
        except (OSError, ValueError) as error:
            self.failures += 1
            _log.warning("the keys of the OIDC issuer can't be read from %s: %s", self._source.name, error)
        except Exception:  # noqa: BLE001  the top of a task; a library may raise anything for a document it did not expect
            self.failures += 1
            _log.exception("the keys of the OIDC issuer can't be read from %s", self._source.name)
        else:
            self._read_at = self._clock.monotonic()
        finally:
            self._reading = None


def check_size(document: bytes | bytearray) -> None:
    """Raise `ValueError` if a document is larger than there is reason for."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")


def parse_keys(document: bytes) -> list[SigningKey]:
    """Return the keys of a JWKS document that sign tokens. Raises `ValueError` if there are none.

    Keys of other types, and those that are too weak, are left out, because issuers publish keys for other uses too.
    """
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        # The text of the error has a part of the document.
        raise ValueError("it is not JSON") from None
    given = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(given, list) or len(given) > _MAX_KEYS:
        raise ValueError(f"it is not a JWKS document with at most {_MAX_KEYS} keys")
    found = [key for one in given if isinstance(one, dict) and (key := _signing_key(one)) is not None]
    if not found:
        raise ValueError("it has no public key of RSA (2048 bits or more), P-256, P-384 or Ed25519 that is for signatures")
    return found


def _signing_key(jwk: dict[str, Any]) -> SigningKey | None:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    kind, curve, key_id, algorithm = (jwk.get(name) for name in ("kty", "crv", "kid", "alg"))
    if not isinstance(kind, str) or not (curve is None or isinstance(curve, str)):
        return None
    algorithms = _ALGORITHMS.get((kind, None if kind == "RSA" else curve), frozenset())
    if isinstance(algorithm, str):
        algorithms &= {algorithm}
    if not algorithms or not _is_for_signatures(jwk) or "d" in jwk:
        return None
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _MAX_KEY_ID_LENGTH):
        return None
    try:
        key = PyJWK(jwk, algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and not _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS:
        return None
    return SigningKey(key_id, algorithms, key)


def _is_for_signatures(jwk: dict[str, Any]) -> bool:
    operations = jwk.get("key_ops")
    return jwk.get("use", "sig") == "sig" and (operations is None or (isinstance(operations, list) and "verify" in operations))
