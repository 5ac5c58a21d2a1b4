"""Tokens of an OIDC issuer (JWT, RFC 7519): who sends a request that carries one.

A token counts if its issuer and audience are those of the settings, it is valid now, and a key of the issuer has signed it. The
library PyJWT checks the signature; the claims are checked here, strictly: a claim that is missing, appears twice or is of
another type than it should be is refused. Whoever sends a token that does not count learns no more than that.

The name of the principal is a claim, and so are its roles; of those, the ones that exist here count. The principal has the
grants of the user of its name, if there is one.
"""

import base64
import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from tailrace.broker.security.authentication import Authenticator, Login
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.signing_keys import FileKeys, KeySource, SigningKey, SigningKeys
from tailrace.broker.security.users import Users
from tailrace.model.clock import Clock
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import Limits
from tailrace.model.security import ANONYMOUS, EVERYBODY, SERVER, Principal

LEEWAY_SECONDS = 30
"""By how much the clocks of issuer and server may differ."""
_MAX_REMEMBERED = 10_000
_MAX_KEY_ID_LENGTH = 256
_LATEST_SECONDS = 1 << 40
_DOTS = 2
"""Between the segments of a JWT. Tokens of the server have none."""
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""What a token may say of itself. Others, such as those that announce a logout, are no credentials."""
_RESERVED = (SERVER.name, ANONYMOUS.name, EVERYBODY)


class VerifiedToken(msgspec.Struct, frozen=True):
    """What a token says that was checked."""

    name: str
    roles: tuple[str, ...]
    expires_ms: int
    """With the leeway."""
    key: SigningKey


class OidcTokens:
    """Used on the event loop."""

    def __init__(
        self, settings: SecuritySettings, users: Users, authenticator: Authenticator, clock: Clock, limits: Limits
    ) -> None:
        check_oidc_settings(settings)
        self._settings = settings
        self._users = users
        self._authenticator = authenticator
        self._clock = clock
        self._limits = limits
        self._remembered: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        """What was found in tokens that count, by the hash of their text: clients of HTTP send one with each request."""
        self.keys: SigningKeys | None = None
        if settings.oidc_keys is not None and not is_url(settings.oidc_keys):
            self.read_keys_from(FileKeys(settings.oidc_keys))

    @property
    def is_on(self) -> bool:
        """Whether tokens of an issuer are accepted."""
        return self._settings.oidc_issuer is not None

    def read_keys_from(self, source: KeySource) -> None:
        """Read the issuer's keys from there. The server calls it for a URL, because the broker has no sockets."""
        self.keys = SigningKeys(source, self._clock)

    async def by_bearer(self, text: str, host: str) -> Login:
        """Return the login of whom a token is for, which may be one of the server itself. Raises `AuthenticationError`."""
        if text.count(".") != _DOTS:
            return self._authenticator.by_token(text, host)
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        found = self._remembered.get(digest)
        if found is None or self._is_over(found) or not await self._is_signed_still(found):
            self._remembered.pop(digest, None)
            try:
                found = await self._verified(text)
            except (ValueError, RecursionError):
                # The texts of these errors have parts of the token.
                raise self._authenticator.failure("", host, "OIDC token") from None
            self._remembered[digest] = found
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        user = self._users.find(found.name)
        roles = tuple(role for role in found.roles if self._users.find_role(role) is not None)
        principal = Principal(found.name, host, roles[: self._limits.user_roles])
        return Login(principal, 0 if user is None else user.id, expires_ms=found.expires_ms)

    async def close(self) -> None:
        if self.keys is not None:
            await self.keys.close()

    def _is_over(self, token: VerifiedToken) -> bool:
        return token.expires_ms <= self._clock.now_ms()

    async def _is_signed_still(self, token: VerifiedToken) -> bool:
        """Return whether the issuer has not withdrawn the key."""
        key = token.key
        if self.keys is None:
            return False
        found = await self.keys.find(key.key_id, min(key.algorithms))
        return found is not None and (found.key is key.key or found.key == key.key)

    async def _verified(self, text: str) -> VerifiedToken:
        """Raise `ValueError` unless the token counts."""
        if self.keys is None or len(text) > self._limits.bearer_token_bytes or not text.isascii():
            raise ValueError("there is no issuer, or this is no token")
        header, payload, _ = text.split(".")
        head = _strict_object(header)
        algorithm, key_id = head.get("alg"), head.get("kid")
        kind = head.get("typ")
        if not isinstance(algorithm, str) or "crit" in head or "b64" in head:
            raise ValueError("the header is not that of a token")
        if not (kind is None or isinstance(kind, str)) or (kind and kind.lower()) not in _TYPES:
            raise ValueError("it is another kind of token")
        if not (key_id is None or (isinstance(key_id, str) and len(key_id) <= _MAX_KEY_ID_LENGTH)):
            raise ValueError("the name of the key is not one")
        # Before the key is looked up: what could not count anyhow makes nobody read the keys.
        found = self._checked(_strict_object(payload))
        key = await self.keys.find(key_id, algorithm)
        if key is None:
            raise ValueError("no such key")
        _check_signature(text, key, algorithm)
        return VerifiedToken(*found, key)

    def _checked(self, claims: dict[str, Any]) -> tuple[str, tuple[str, ...], int]:
        """Return name, roles and end. Raises `ValueError` unless the claims are for this server, and now."""
        settings = self._settings
        now = self._clock.now_ms() / 1000
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != settings.oidc_issuer or settings.oidc_audience not in audiences:
            raise ValueError("it is of another issuer, or for another audience")
        end = _time(claims.get("exp")) + LEEWAY_SECONDS
        if end <= now or ("nbf" in claims and _time(claims["nbf"]) - LEEWAY_SECONDS > now):
            raise ValueError("it is not valid now")
        return self._name(claims), _names(_claim(claims, settings.oidc_roles_claim)), int(end * 1000)

    def _name(self, claims: dict[str, Any]) -> str:
        name = _claim(claims, self._settings.oidc_name_claim)
        if not isinstance(name, str) or not name or not name.isprintable() or name in _RESERVED:
            raise ValueError("it names nobody")
        # The grants of a role are for those whom somebody made its members, not for those who have its name.
        if len(name.encode(errors="replace")) > self._limits.user_name_length or self._users.find_role(name) is not None:
            raise ValueError("it can't be the name of a principal")
        return name


def is_url(keys: str) -> bool:
    return "://" in keys


def check_oidc_settings(settings: SecuritySettings) -> None:
    """Raise `ConfigurationError` unless all is there that tokens of an issuer need."""
    given = {name: getattr(settings, name) for name in ("oidc_issuer", "oidc_audience", "oidc_keys")}
    missing = [f"security.{name}" for name, value in given.items() if not value]
    if 0 < len(missing) < len(given):
        raise ConfigurationError(
            f"tokens of an OIDC issuer need security.oidc_issuer, oidc_audience and oidc_keys; set {' and '.join(missing)} too"
        )
    keys = settings.oidc_keys
    if keys is not None and is_url(keys) and not keys.startswith("https://"):
        raise ConfigurationError(
            "security.oidc_keys must be a file or begin with https://; whoever can change the keys is let in"
        )


def _check_signature(text: str, key: SigningKey, algorithm: str) -> None:
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    try:
        PyJWS().decode(text, key.key, algorithms=[algorithm])
    except (PyJWTError, TypeError) as error:
        raise ValueError("the signature is wrong") from error


def _strict_object(segment: str) -> dict[str, Any]:
    """Return the JSON object of a segment of a token. Raises `ValueError`, also for a name that appears twice."""
    data = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
    found = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _time(value: object) -> float:
    """Return the seconds of a claim. Raises `ValueError` for what is no point in time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_SECONDS or math.isnan(value):
        raise ValueError("it is no point in time")
    return float(value)


def _claim(claims: dict[str, Any], name: str | None) -> object:
    """Return a claim. One within others is named by its path: Keycloak's roles are in `realm_access.roles`."""
    if name is None:
        return None
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _names(value: object) -> tuple[str, ...]:
    """Return the names in a claim: an array, or words in one text."""
    if isinstance(value, str):
        value = value.split()
    return tuple(dict.fromkeys(one for one in value if isinstance(one, str))) if isinstance(value, list) else ()
