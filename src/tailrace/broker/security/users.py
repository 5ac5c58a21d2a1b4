"""Users, roles and tokens, kept in the store. A user or role goes with all that it was granted, in one commit.

Nobody can take away the last administrator, or its last password and token: nobody could give them back. Who logs in with a
certificate or a token of an issuer is not known here, and does not count.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.security.grants import Grants
from tailrace.broker.security.passwords import make_verifiers, normalized
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    InvalidRequestError,
    LastAdministratorError,
    LimitExceededError,
    UnacceptableCredentialError,
    UnknownUserError,
    UserExistsError,
)
from tailrace.model.limits import Limits
from tailrace.model.security import ADMIN_ROLE, ANONYMOUS, EVERYBODY, SERVER, Principal, Role, ScramVerifier, Token, User
from tailrace.model.suggestions import did_you_mean
from tailrace.store.contract import Store

_TOKEN_PREFIX = "tlr"  # noqa: S105  not secret
_TOKEN_ID_BYTES = 6
_TOKEN_SECRET_BYTES = 32
_RESERVED = (SERVER.name, ANONYMOUS.name, EVERYBODY)

M = TypeVar("M", bound=User | Role)
S = TypeVar("S", User, Role, Token)
Puts = Sequence[tuple[bytes, bytes | None]]


class NewToken(NamedTuple):
    token: Token
    text: str
    """What its owner sends. It is not stored and can't be shown again."""


class Users:
    """All users, roles and tokens. Used on the event loop."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        threads: ReadThreads,
        clock: Clock,
        limits: Limits,
        grants: Grants,
    ) -> None:
        self._store = store
        self._committer = committer
        self._threads = threads
        self._clock = clock
        self._limits = limits
        self._grants = grants
        self._turns = grants.turns
        self._users: dict[str, User] = {}
        self._roles: dict[str, Role] = {}
        self._tokens: dict[str, Token] = {}
        self.observers: list[Callable[[], None]] = []
        """Called whenever anything has changed here: what is remembered of principals is out of date."""
        self.on_change: Callable[[str, str], None] = lambda what, resource: None
        """Called with what was changed, for the audit."""

    def load(self) -> None:
        """Read everything from the store."""
        self._users = {user.name: user for user in self._stored(keys.USERS, User)}
        self._roles = {role.name: role for role in self._stored(keys.ROLES, Role)}
        self._tokens = {token.id: token for token in self._stored(keys.TOKENS, Token)}
        self._roles.setdefault(ADMIN_ROLE, Role(name=ADMIN_ROLE))

    def _stored(self, prefix: bytes, kind: type[S]) -> Iterator[S]:
        return (msgspec.msgpack.decode(value, type=kind) for _, value in self._store.range(prefix))

    def __iter__(self) -> Iterator[User]:
        return iter(sorted(self._users.values(), key=lambda user: user.name))

    def roles(self) -> list[Role]:
        return sorted(self._roles.values(), key=lambda role: role.name)

    def tokens(self) -> list[Token]:
        return sorted(self._tokens.values(), key=lambda token: (token.user, token.id))

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def find_role(self, name: str) -> Role | None:
        return self._roles.get(name)

    def get(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise UnknownUserError(f"there is no user {name!r}{did_you_mean(name, self._users)}")
        return user

    def get_role(self, name: str) -> Role:
        role = self._roles.get(name)
        if role is None:
            raise UnknownUserError(f"there is no role {name!r}{did_you_mean(name, self._roles)}")
        return role

    def find_token(self, text: str) -> Token | None:
        """Return the token that somebody sends, if it is known and not expired."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._tokens.get(token_id) if prefix == _TOKEN_PREFIX else None
        digest = hashlib.sha256(secret.encode(errors="replace")).digest()
        if token is None or not hmac.compare_digest(digest, token.digest) or self._is_expired(token):
            return None
        return token

    def has_token(self, token_id: str) -> bool:
        return token_id in self._tokens

    def names_of(self, principal: Principal) -> frozenset[str]:
        """Return the names whose grants count for a principal: its own, those of all its roles, and that of everybody.

        A certificate or token may be for a name that is a role's here. That makes nobody a member of it.
        """
        user = self._users.get(principal.name)
        found = {EVERYBODY} if principal.name in self._roles else {principal.name, EVERYBODY}
        waiting = [*principal.roles, *(() if user is None else user.roles)]
        while waiting:
            name = waiting.pop()
            role = self._roles.get(name)
            if role is not None and name not in found:
                found.add(name)
                waiting += role.roles
        return frozenset(found)

    async def create(self, name: str, password: str | None = None, roles: Sequence[str] = ()) -> User:
        """Create a user. One without a password logs in by a token or a certificate."""
        verifiers = await self._verifiers(password)
        return await self._turns.run(self._create(name, verifiers, roles))

    async def set_password(self, name: str, password: str | None) -> User:
        verifiers = await self._verifiers(password)

        async def change() -> User:
            user = self.get(name)
            changed = msgspec.structs.replace(user, verifiers=verifiers, version=user.version + 1)
            self._check_administered(changed)
            return await self._put(changed, what="set password" if verifiers else "remove password")

        return await self._turns.run(change())

    async def set_verifier(self, name: str, verifier: ScramVerifier) -> User:
        """Set the verifier of one mechanism, which was made elsewhere. Creates the user if there is none of this name."""

        async def change() -> User:
            user = self.find(name)
            if user is None:
                return await self._create(name, (verifier,))
            others = tuple(one for one in user.verifiers if one.mechanism != verifier.mechanism)
            changed = msgspec.structs.replace(user, verifiers=(*others, verifier), version=user.version + 1)
            return await self._put(changed, what="set password")

        return await self._turns.run(change())

    async def remove_verifier(self, name: str, mechanism: str) -> User:
        async def change() -> User:
            user = self.get(name)
            left = tuple(one for one in user.verifiers if one.mechanism != mechanism)
            if left == user.verifiers:
                raise UnknownUserError(f"user {name!r} has no password for {mechanism}")
            changed = msgspec.structs.replace(user, verifiers=left, version=user.version + 1)
            self._check_administered(changed)
            return await self._put(changed, what="remove password")

        return await self._turns.run(change())

    async def drop(self, name: str) -> None:
        """Drop a user with its tokens and grants."""

        async def change() -> None:
            self.get(name)
            self._check_administered(dropped=name)
            tokens = [token.id for token in self._tokens.values() if token.user == name]

            def dropped() -> None:
                del self._users[name]
                self._grants.forget(name)
                for each in tokens:
                    del self._tokens[each]

            puts = (
                (keys.user_key(name), None),
                *((keys.token_key(each), None) for each in tokens),
                *self._grants.removal_of(name),
            )
            await self._commit(puts, dropped)
            self.on_change("drop user", name)

        await self._turns.run(change())

    async def create_role(self, name: str) -> Role:
        async def change() -> Role:
            self._check_new(name)
            return await self._put(Role(name=name, created_ms=self._clock.now_ms()), what="create role")

        return await self._turns.run(change())

    async def drop_role(self, name: str) -> None:
        """Drop a role, take it from its members, and drop its grants."""
        if name == ADMIN_ROLE:
            raise InvalidRequestError(f"the role {ADMIN_ROLE!r} is always there; revoke it from its members instead")

        async def change() -> None:
            self.get_role(name)
            everybody: list[User | Role] = [*self._users.values(), *self._roles.values()]
            members = [_without(one, name) for one in everybody if name in one.roles]
            self._check_administered(*members)

            def dropped() -> None:
                del self._roles[name]
                self._grants.forget(name)
                for member in members:
                    self._enter(member)

            puts = ((keys.role_key(name), None), *map(_stored, members), *self._grants.removal_of(name))
            await self._commit(puts, dropped)
            self.on_change("drop role", name)

        await self._turns.run(change())

    async def grant_role(self, role: str, member: str) -> None:
        """Make a user or role a member of a role."""

        async def change() -> None:
            self.get_role(role)
            found = self._member(member)
            if role in found.roles:
                return
            if member in self.names_of(Principal("", roles=(role,))):
                raise InvalidRequestError(f"role {role!r} is itself a member of {member!r}; revoke that first")
            if len(found.roles) >= self._limits.user_roles:
                raise LimitExceededError(
                    f"{member!r} is a member of {len(found.roles)} roles, as many as user_roles allows"
                    f" ({self._limits.user_roles})"
                )
            await self._put(msgspec.structs.replace(found, roles=(*found.roles, role)), what=f"grant role {role}")

        await self._turns.run(change())

    async def revoke_role(self, role: str, member: str) -> None:
        async def change() -> None:
            self.get_role(role)
            found = self._member(member)
            if role in found.roles:
                changed = _without(found, role)
                self._check_administered(changed)
                await self._put(changed, what=f"revoke role {role}")

        await self._turns.run(change())

    async def create_token(self, user: str, expires_ms: int | None = None, note: str = "") -> NewToken:
        """Create a token by which programs authenticate as a user."""
        secret = secrets.token_urlsafe(_TOKEN_SECRET_BYTES)
        token = Token(
            id=secrets.token_hex(_TOKEN_ID_BYTES),
            user=user,
            digest=hashlib.sha256(secret.encode()).digest(),
            expires_ms=expires_ms,
            note=note,
            created_ms=self._clock.now_ms(),
        )

        async def change() -> NewToken:
            self.get(user)
            if len(self._tokens) >= self._limits.tokens:
                raise LimitExceededError(f"there are {len(self._tokens)} tokens, as many as tokens allows; drop some first")

            def created() -> None:
                self._tokens[token.id] = token

            await self._commit(((keys.token_key(token.id), msgspec.msgpack.encode(token)),), created)
            self.on_change("create token", f"{token.id} of {user}")
            return NewToken(token, f"{_TOKEN_PREFIX}_{token.id}_{secret}")

        return await self._turns.run(change())

    async def drop_token(self, token_id: str) -> Token:
        async def change() -> Token:
            token = self._tokens.get(token_id)
            if token is None:
                raise UnknownUserError(f"there is no token {token_id!r}{did_you_mean(token_id, self._tokens)}")
            self._check_administered(dropped_token=token_id)

            def dropped() -> None:
                del self._tokens[token_id]

            await self._commit(((keys.token_key(token_id), None),), dropped)
            self.on_change("drop token", f"{token_id} of {token.user}")
            return token

        return await self._turns.run(change())

    async def _verifiers(self, password: str | None) -> tuple[ScramVerifier, ...]:
        if password is None:
            return ()
        return await self._threads.run(make_verifiers, normalized(password, self._limits))

    async def _create(self, name: str, verifiers: tuple[ScramVerifier, ...], roles: Sequence[str] = ()) -> User:
        self._check_new(name)
        for role in roles:
            self.get_role(role)
        number = int.from_bytes(self._store.latest(keys.LAST_USER_ID) or b"") + 1
        user = User(
            id=number,
            name=name,
            verifiers=verifiers,
            roles=tuple(dict.fromkeys(roles)),
            created_ms=self._clock.now_ms(),
        )
        return await self._put(user, (keys.LAST_USER_ID, number.to_bytes(4)), what="create user")

    async def _put(self, one: M, *more: tuple[bytes, bytes | None], what: str) -> M:
        """Store a user or role. `what` says for the audit what this changes."""
        await self._commit((_stored(one), *more), lambda: self._enter(one))
        self.on_change(what, one.name)
        return one

    async def _commit(self, puts: Puts, done: Callable[[], None]) -> None:
        def settled(_: object) -> None:
            done()
            for observer in self.observers:
                observer()

        await self._committer.submit(Change(lambda: Changes(puts=tuple(puts)), settled))

    def _check_administered(self, *changed: User | Role, dropped: str = "", dropped_token: str = "") -> None:
        """Raise `LastAdministratorError` if a change takes away the last administrator, or the last way for one to log in.

        Called within the turn of the change, so that of two changes at the same time the second one sees the first.
        """
        users = {**self._users, **{one.name: one for one in changed if isinstance(one, User)}}
        roles = {**self._roles, **{one.name: one for one in changed if isinstance(one, Role)}}
        users.pop(dropped, None)
        owners = {token.user for token in self._tokens.values() if not self._is_expired(token)}
        owners_then = {
            token.user for token in self._tokens.values() if token.id != dropped_token and not self._is_expired(token)
        }
        now = _administrators(self._users.values(), self._roles)
        then = _administrators(users.values(), roles)
        if now and not then:
            raise LastAdministratorError(
                f"nobody would be in the role {ADMIN_ROLE!r} any more; GRANT {ADMIN_ROLE} TO another user first"
            )
        if any(_can_log_in(one, owners) for one in now) and not any(_can_log_in(one, owners_then) for one in then):
            raise LastAdministratorError(
                f"no administrator would have a password or a token any more; give {then[0].name!r} one first, by ALTER USER or"
                " CREATE TOKEN"
            )

    def _enter(self, one: User | Role) -> None:
        if isinstance(one, User):
            self._users[one.name] = one
        else:
            self._roles[one.name] = one

    def _member(self, name: str) -> User | Role:
        return self._users.get(name) or self._roles.get(name) or self.get(name)

    def _check_new(self, name: str) -> None:
        if name in self._users or name in self._roles:
            raise UserExistsError(f"a {'user' if name in self._users else 'role'} {name!r} already exists")
        size = len(name.encode(errors="replace"))
        if not name or not name.isprintable() or any(sign in name for sign in ":\"'") or name in _RESERVED:
            raise UnacceptableCredentialError(
                f"{name!r} can't be the name of a user or role; use letters, digits and signs other than ':' and quotes"
            )
        if size > self._limits.user_name_length:
            raise LimitExceededError(
                f"the name {name[:32]!r}... has {size} bytes, more than user_name_length allows"
                f" ({self._limits.user_name_length})"
            )
        if len(self._users) + len(self._roles) >= self._limits.users:
            raise LimitExceededError(
                f"there are {len(self._users) + len(self._roles)} users and roles, as many as users allows; drop some first"
            )

    def _is_expired(self, token: Token) -> bool:
        return token.expires_ms is not None and token.expires_ms <= self._clock.now_ms()


def _stored(one: User | Role) -> tuple[bytes, bytes | None]:
    key = keys.user_key(one.name) if isinstance(one, User) else keys.role_key(one.name)
    return key, msgspec.msgpack.encode(one)


def _administrators(users: Iterable[User], roles: Mapping[str, Role]) -> list[User]:
    """Return the users that are members of the role admin, also by other roles."""
    meant = {ADMIN_ROLE}
    while more := {role.name for role in roles.values() if role.name not in meant and not meant.isdisjoint(role.roles)}:
        meant |= more
    return [user for user in users if not meant.isdisjoint(user.roles)]


def _can_log_in(user: User, owners_of_tokens: set[str]) -> bool:
    return bool(user.verifiers) or user.name in owners_of_tokens


def _without(one: M, role: str) -> M:
    return msgspec.structs.replace(one, roles=tuple(each for each in one.roles if each != role))
