"""DescribeUserScramCredentials and AlterUserScramCredentials: the passwords of users, which are not sent but as verifiers.

They are those of SQL's CREATE USER. A user that does not exist yet is made by its first password, as in Kafka. It is still
there when all of them are removed.
"""

from collections import Counter

from tailrace.broker.broker import Broker
from tailrace.broker.security.passwords import MECHANISMS, verifier_of
from tailrace.kafka.access import Access
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import (
    TailraceError,
    UnacceptableCredentialError,
    UnknownUserError,
    UnsupportedMechanismError,
    UserExistsError,
)
from tailrace.model.security import Principal
from tailrace.wire.messages.authentication import (
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {mechanism: number for number, mechanism in _MECHANISMS.items()}


class ScramCredentialHandlers:
    def __init__(self, broker: Broker) -> None:
        self._users = broker.users
        self._permissions = broker.permissions
        self._access = Access(broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_USER_SCRAM_CREDENTIALS_API, self.describe),
            ApiRoute(ALTER_USER_SCRAM_CREDENTIALS_API, self.alter),
        ]

    def describe(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        refusal = self._access.refusal("describe", "cluster")
        if refusal is not None:
            return DescribeUserScramCredentialsResponse(
                error_code=refusal.kafka_code,
                error_message=str(refusal),
                results=tuple(_undescribed(user.name, refusal) for user in request.users or ()),
            )
        names = Counter(user.name for user in request.users or ())
        if not names:
            names = Counter(user.name for user in self._users if user.verifiers)
        return DescribeUserScramCredentialsResponse(
            error_message=None, results=tuple(self._described(name, asked) for name, asked in names.items())
        )

    def _described(self, name: str, asked: int) -> DescribeUserScramCredentialsResult:
        user = self._users.find(name)
        if asked > 1:
            return _undescribed(name, UserExistsError(f"the request names user {name!r} {asked} times"))
        if user is None or not user.verifiers:
            return _undescribed(name, UnknownUserError(f"there is no user {name!r} with a password"))
        return DescribeUserScramCredentialsResult(
            user=name,
            error_message=None,
            credential_infos=tuple(
                CredentialInfo(mechanism=_NUMBERS[each.mechanism], iterations=each.iterations) for each in user.verifiers
            ),
        )

    async def alter(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        changes: tuple[ScramCredentialDeletion | ScramCredentialUpsertion, ...] = (*request.deletions, *request.upsertions)
        named = Counter((change.name, change.mechanism) for change in changes)
        twice = {name for (name, _), count in named.items() if count > 1}
        errors: dict[str, TailraceError | None] = {}
        for change in changes:
            name = change.name
            if errors.get(name) is not None:
                continue
            try:
                self._check(name)
                if name in twice:
                    raise UserExistsError(f"the request changes one password of user {name!r} several times")
                await self._alter(change)
            except TailraceError as error:
                errors[name] = error
            else:
                errors[name] = None
        return AlterUserScramCredentialsResponse(
            results=tuple(
                AlterUserScramCredentialsResult(user=name, error_message=None)
                if error is None
                else AlterUserScramCredentialsResult(user=name, error_code=error.kafka_code, error_message=str(error))
                for name, error in errors.items()
            )
        )

    async def _alter(self, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
        if not change.name:
            raise UnacceptableCredentialError("the name of the user is empty")
        mechanism = _MECHANISMS.get(change.mechanism)
        if mechanism is None:
            raise UnsupportedMechanismError(f"there is no SCRAM mechanism {change.mechanism}; use {' or '.join(MECHANISMS)}")
        if isinstance(change, ScramCredentialDeletion):
            await self._users.remove_verifier(change.name, mechanism)
        else:
            verifier = verifier_of(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
            await self._users.set_verifier(change.name, verifier)

    def _check(self, name: str) -> None:
        """Raise `ForbiddenError` unless the client may set this password. That of an administrator sets administrators only:
        otherwise whoever may alter the cluster could become one."""
        if (refusal := self._access.refusal("alter", "cluster")) is not None:
            raise refusal
        if self._permissions.is_admin(Principal(name)):
            self._permissions.require_admin()


def _undescribed(name: str, error: TailraceError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=error.kafka_code, error_message=str(error))
