"""ACLs and SCRAM credentials as other views of grants and users."""

from typing import Any

import pytest

from tailrace.broker.security.passwords import verifier_of
from tailrace.kafka.acl_bindings import ALLOW, ANY, DENY, LITERAL, MATCH, PREFIXED, AclBinding, AclFilter
from tailrace.model.security import CLUSTER, Grant
from tailrace.wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tailrace.wire.messages.authentication import (
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.support.aio import on_loop
from tests.support.kafka import Asker, running_asker
from tests.support.sasl import REQUIRED
from tests.unit.kafka.test_permissions import ADMIN, secured

ALL_OPERATIONS, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
DESCRIBE_CONFIGS = 10
ON_TOPIC, ON_GROUP, ON_CLUSTER, ON_TRANSACTION, ON_TOKEN, ON_USER = range(2, 8)
INVALID_REQUEST, SECURITY_DISABLED = 42, 54
EVERYTHING = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def acl(resource: int = ON_TOPIC, name: str = "orders", operation: int = READ, **more: Any) -> AclBinding:
    plain = AclBinding(resource, name, LITERAL, "User:alice", "*", operation, ALLOW)
    return plain._replace(**more)


async def create(asker: Asker, *acls: AclBinding) -> list[int]:
    creations = tuple(
        AclCreation(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in acls
    )
    answer = await asker.ask(CREATE_ACLS_API, CreateAclsRequest(creations=creations), client=ADMIN)
    return [result.error_code for result in answer.results]


async def described(asker: Asker, wanted: AclFilter = EVERYTHING) -> set[AclBinding]:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )
    answer = await asker.ask(DESCRIBE_ACLS_API, request, client=ADMIN)
    assert answer.error_code == 0
    found = [
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in answer.resources
        for each in resource.acls
    ]
    assert len(set(found)) == len(found)
    resources = [(each.resource_type, each.resource_name, each.pattern_type) for each in answer.resources]
    assert len(set(resources)) == len(resources)
    return set(found)


async def deleted(asker: Asker, wanted: AclFilter) -> set[AclBinding]:
    asked = DeleteAclsFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )
    answer = await asker.ask(DELETE_ACLS_API, DeleteAclsRequest(filters=(asked,)), client=ADMIN)
    (result,) = answer.filter_results
    assert result.error_code == 0
    return {
        AclBinding(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in result.matching_acls
    }


ACLS = {
    acl(): Grant(principal="alice", operation="consume", kind="topic", name="orders"),
    acl(operation=WRITE, host="192.0.2.1"): Grant(
        principal="alice", operation="publish", kind="topic", name="orders", host="192.0.2.1"
    ),
    acl(operation=DELETE, permission_type=DENY): Grant(
        principal="alice", operation="drop", kind="topic", name="orders", is_denied=True
    ),
    acl(operation=ALL_OPERATIONS, principal="User:*"): Grant(principal="*", operation="all", kind="topic", name="orders"),
    acl(name="orders.", pattern_type=PREFIXED): Grant(
        principal="alice", operation="consume", kind="topic", name="orders.", pattern="prefixed"
    ),
    acl(name="*"): Grant(principal="alice", operation="consume", kind="topic", name="*"),
    acl(ON_GROUP, "billing"): Grant(principal="alice", operation="consume", kind="group", name="billing"),
    acl(ON_TRANSACTION, "mover", WRITE): Grant(principal="alice", operation="publish", kind="transactional_id", name="mover"),
    acl(ON_CLUSTER, CLUSTER, ALTER): Grant(principal="alice", operation="alter", kind="cluster", name=CLUSTER),
    acl(name="_changes.app.orders"): Grant(principal="alice", operation="select", kind="table", name="app.orders"),
    acl(name="_changes.app.orders", operation=DESCRIBE): Grant(
        principal="alice", operation="describe", kind="table", name="app.orders"
    ),
    acl(name="_changes.app.", pattern_type=PREFIXED): Grant(
        principal="alice", operation="select", kind="table", name="app.", pattern="prefixed"
    ),
    acl(name="_changes.", pattern_type=PREFIXED): Grant(principal="alice", operation="select", kind="table", name="*"),
    acl(principal="Role:support"): Grant(principal="support", operation="consume", kind="topic", name="orders"),
}


@on_loop
async def test_acls_are_grants() -> None:
    async with secured() as asker:
        await asker.broker.users.create_role("support")
        assert await create(asker, *ACLS) == [0] * len(ACLS)
        assert set(asker.broker.grants) == set(ACLS.values())
        assert await create(asker, *ACLS) == [0] * len(ACLS)
        assert await described(asker) == set(ACLS)
        assert await deleted(asker, EVERYTHING) == set(ACLS)
        assert len(asker.broker.grants) == 0


@pytest.mark.parametrize(
    "grant",
    [
        Grant(principal="alice", operation="consume", kind="topic", name="orders.*", pattern="pattern"),
        Grant(principal="alice", operation="admin", kind="topic", name="orders"),
        Grant(principal="alice", operation="insert", kind="table", name="app.orders"),
        Grant(principal="alice", operation="all", kind="table", name="app.orders"),
        Grant(principal="alice", operation="consume", kind="queue", name="work"),
        Grant(principal="alice", operation="alter", kind="source", name="crm"),
    ],
)
@on_loop
async def test_grants_that_kafka_can_not_say_are_left_alone(grant: Grant) -> None:
    async with secured() as asker:
        await asker.broker.grants.add([grant])
        assert await described(asker) == set()
        assert await deleted(asker, EVERYTHING) == set()
        assert list(asker.broker.grants) == [grant]


@pytest.mark.parametrize(
    "wrong",
    [
        acl(ON_TOKEN),
        acl(ON_USER),
        acl(0),
        acl(operation=0),
        acl(operation=1),
        acl(operation=14),
        acl(pattern_type=ANY),
        acl(pattern_type=MATCH),
        acl(permission_type=ANY),
        acl(principal="alice"),
        acl(principal="Group:alice"),
        acl(principal="User:"),
        acl(principal="User:" + "x" * 300),
        acl(principal="User:admin"),
        acl(principal="Role:alice"),
        acl(host=""),
        acl(name=""),
        acl(ON_CLUSTER, "another", ALTER),
        acl(ON_GROUP, operation=WRITE),
        acl(name="_changes.app.orders", operation=WRITE),
        acl(name="_changes.app.orders", operation=ALL_OPERATIONS),
        acl(name="_changes.app.orders", operation=DESCRIBE_CONFIGS),
    ],
)
@on_loop
async def test_other_acls_are_refused_alone(wrong: AclBinding) -> None:
    async with secured() as asker:
        assert await create(asker, wrong, acl()) == [INVALID_REQUEST, 0]
        assert await described(asker) == {acl()}


FILTERS = {
    "all": (EVERYTHING, range(8)),
    "one name": (EVERYTHING._replace(resource_name="orders", resource_type=ON_TOPIC), (0, 1, 2)),
    "one name, literal": (EVERYTHING._replace(resource_name="orders", pattern_type=LITERAL), (0, 1, 2, 7)),
    "what concerns one name": (
        EVERYTHING._replace(resource_name="orders.new", resource_type=ON_TOPIC, pattern_type=MATCH),
        (3, 4, 5),
    ),
    "prefixed": (EVERYTHING._replace(pattern_type=PREFIXED), (4, 5)),
    "one prefix": (EVERYTHING._replace(resource_name="orders.", pattern_type=PREFIXED), (4,)),
    "a kind": (EVERYTHING._replace(resource_type=ON_GROUP), (6, 7)),
    "an operation": (EVERYTHING._replace(operation=WRITE), (1,)),
    "a permission": (EVERYTHING._replace(permission_type=DENY), (2,)),
    "a principal": (EVERYTHING._replace(principal="User:bob"), (5,)),
    "a host": (EVERYTHING._replace(host="192.0.2.1"), (6,)),
    "nothing": (EVERYTHING._replace(resource_name="order"), ()),
}
FOUND = [
    acl(),
    acl(operation=WRITE),
    acl(permission_type=DENY, operation=DELETE),
    acl(name="*"),
    acl(name="orders.", pattern_type=PREFIXED),
    acl(name="ord", pattern_type=PREFIXED, principal="User:bob"),
    acl(ON_GROUP, "billing", host="192.0.2.1"),
    acl(ON_GROUP, "orders"),
]


@pytest.mark.parametrize("name", FILTERS)
@on_loop
async def test_filters(name: str) -> None:
    wanted, places = FILTERS[name]
    async with secured() as asker:
        await create(asker, *FOUND)
        matching = {FOUND[place] for place in places}
        assert await described(asker, wanted) == matching
        assert await deleted(asker, wanted) == matching
        assert await described(asker) == set(FOUND) - matching


@pytest.mark.parametrize(
    "wanted",
    [EVERYTHING._replace(pattern_type=0), EVERYTHING._replace(permission_type=9), EVERYTHING._replace(operation=0)],
)
@on_loop
async def test_filters_with_unknown_numbers_are_refused(wanted: AclFilter) -> None:
    async with secured() as asker:
        await create(asker, acl())
        asked = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=None,
            host_filter=None,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        )
        answer = await asker.ask(DELETE_ACLS_API, DeleteAclsRequest(filters=(asked,)), client=ADMIN)
        assert answer.filter_results[0].error_code == INVALID_REQUEST
        assert await described(asker) == {acl()}


@on_loop
async def test_without_authentication_there_are_no_acls() -> None:
    async with running_asker() as asker:
        assert (await asker.ask(DESCRIBE_ACLS_API, DescribeAclsRequest())).error_code == SECURITY_DISABLED
        created = await asker.ask(CREATE_ACLS_API, CreateAclsRequest(creations=(AclCreation(),)))
        assert [result.error_code for result in created.results] == [SECURITY_DISABLED]
        removed = await asker.ask(DELETE_ACLS_API, DeleteAclsRequest(filters=(DeleteAclsFilter(),)))
        assert [result.error_code for result in removed.filter_results] == [SECURITY_DISABLED]


SALT = b"0123456789abcdef"


def upsertion(name: str = "bob", mechanism: int = 1, **more: Any) -> ScramCredentialUpsertion:
    size = 32 if mechanism == 1 else 64
    given = {"iterations": 8192, "salt": SALT, "salted_password": b"p" * size, **more}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **given)


async def altered(asker: Asker, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    answer = await asker.ask(ALTER_USER_SCRAM_CREDENTIALS_API, request, client=ADMIN)
    return {result.user: result.error_code for result in answer.results}


async def credentials(asker: Asker, *names: str) -> dict[str, Any]:
    request = DescribeUserScramCredentialsRequest(users=tuple(UserName(name=name) for name in names) or None)
    answer = await asker.ask(DESCRIBE_USER_SCRAM_CREDENTIALS_API, request, client=ADMIN)
    assert answer.error_code == 0
    return {
        result.user: result.error_code or [(each.mechanism, each.iterations) for each in result.credential_infos]
        for result in answer.results
    }


@on_loop
async def test_credentials_are_verifiers_of_users() -> None:
    async with running_asker(security=REQUIRED) as asker:
        await asker.broker.users.create("root", roles=("admin",))
        assert await altered(asker, upsertion(), upsertion(mechanism=2)) == {"bob": 0}
        bob = asker.broker.users.get("bob")
        assert bob.verifiers == (
            verifier_of("SCRAM-SHA-256", b"p" * 32, SALT, 8192),
            verifier_of("SCRAM-SHA-512", b"p" * 64, SALT, 8192),
        )
        assert await credentials(asker) == {"bob": [(1, 8192), (2, 8192)]}
        assert await altered(asker, ScramCredentialDeletion(name="bob", mechanism=1)) == {"bob": 0}
        assert await credentials(asker, "bob", "nobody", "root") == {"bob": [(2, 8192)], "nobody": 91, "root": 91}
        assert await credentials(asker, "bob", "bob") == {"bob": 92}


@on_loop
async def test_the_last_credential_of_the_last_administrator_stays() -> None:
    async with running_asker(security=REQUIRED) as asker:
        await asker.broker.users.create("root", roles=("admin",))
        assert await altered(asker, upsertion("root"), upsertion("root", mechanism=2)) == {"root": 0}
        both = [ScramCredentialDeletion(name="root", mechanism=number) for number in (1, 2)]
        assert await altered(asker, *both) == {"root": 44}
        assert await credentials(asker) == {"root": [(2, 8192)]}
        await asker.broker.users.create_token("root")
        assert await altered(asker, both[1]) == {"root": 0}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ((upsertion(iterations=4095),), 93),
        ((upsertion(iterations=16_385),), 93),
        ((upsertion(salt=b""),), 93),
        ((upsertion(salted_password=b"short"),), 93),
        ((upsertion(name=""),), 93),
        ((upsertion(name="a:b"),), 93),
        ((upsertion(mechanism=0),), 33),
        ((upsertion(mechanism=3),), 33),
        ((ScramCredentialDeletion(name="bob", mechanism=1),), 91),
        ((upsertion(), upsertion()), 92),
        ((ScramCredentialDeletion(name="bob", mechanism=1), upsertion()), 92),
    ],
)
@on_loop
async def test_other_credentials_are_refused(changes: Any, code: int) -> None:
    async with running_asker(security=REQUIRED) as asker:
        await asker.broker.users.create("root", roles=("admin",))
        name = changes[0].name
        assert await altered(asker, *changes, upsertion("carol")) == {name: code, "carol": 0}
        assert [user.name for user in asker.broker.users if user.verifiers] == ["carol"]
