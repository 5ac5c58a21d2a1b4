"""Who acts on the server, and what they may do: principals, users, roles, tokens and grants.

A **principal** is who sends a request. It has the name of a user, of a client certificate or of a token of an OIDC issuer. A
**grant** allows or denies one operation on resources to the principal, or the role, of a name. Kafka's ACLs, SQL's GRANT and
the scopes of HTTP are views of the same grants.
"""

from typing import Literal, get_args

import msgspec

ResourceKind = Literal["topic", "table", "group", "queue", "source", "transactional_id", "cluster"]
"""`cluster` is the server itself, with the one name `CLUSTER`."""
NamePattern = Literal["literal", "prefixed", "pattern"]
"""How a grant names resources: by one name (`*` is all), by the beginning of names, or by a pattern of topics (`orders.*`)."""
Operation = Literal[
    "describe",
    "consume",
    "publish",
    "select",
    "insert",
    "update",
    "delete",
    "create",
    "alter",
    "drop",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "cluster_action",
    "all",
    "admin",
]
"""`all` is every operation on the resource but granting it to others, which `admin` allows too."""

CLUSTER = "kafka-cluster"
"""The name of the resource `cluster`, as in Kafka."""
ANY_NAME = "*"
ANY_HOST = "*"
EVERYBODY = "*"
"""The name of the principal that a grant to everybody has."""
AUDIT_TOPIC = "_audit"
"""The topic of the audit, which only the server writes."""
ADMIN_ROLE = "admin"
"""The role that exists in every log. Its members may do everything."""

OPERATIONS_ON: dict[ResourceKind, frozenset[Operation]] = {
    "topic": frozenset(
        ("describe", "consume", "publish", "create", "alter", "drop", "describe_configs", "alter_configs", "all", "admin")
    ),
    "table": frozenset(("describe", "select", "insert", "update", "delete", "create", "alter", "drop", "all", "admin")),
    "group": frozenset(("describe", "consume", "alter", "drop", "describe_configs", "alter_configs", "all", "admin")),
    "queue": frozenset(("describe", "consume", "alter", "drop", "all", "admin")),
    "source": frozenset(("describe", "create", "alter", "drop", "all", "admin")),
    "transactional_id": frozenset(("describe", "publish", "all", "admin")),
    "cluster": frozenset(
        (
            "describe",
            "create",
            "alter",
            "describe_configs",
            "alter_configs",
            "idempotent_write",
            "cluster_action",
            "all",
            "admin",
        )
    ),
}
"""Which operations there are on each kind of resource."""

IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    "describe": frozenset(("consume", "publish", "select", "insert", "update", "delete", "alter", "drop")),
    "describe_configs": frozenset(("alter_configs",)),
}
"""Operations that who may do another one may do as well, as in Kafka."""


class Principal(msgspec.Struct, frozen=True):
    """Who sends a request, from where."""

    name: str
    host: str = ""
    roles: tuple[str, ...] = ()
    """Roles that it has besides those of the user of its name: those that a token of an OIDC issuer names."""
    is_server: bool = False
    """Whether it is the server itself, or a process that it has started. Nothing is denied to it."""


SERVER = Principal("SERVER", is_server=True)
ANONYMOUS = Principal("ANONYMOUS")
"""Who sends requests where no authentication is demanded, and who has not authenticated yet where it is."""


class ScramVerifier(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a password for one mechanism of SCRAM. The password does not follow from it."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    """Never reused, not even for a user of the same name."""
    name: str
    verifiers: tuple[ScramVerifier, ...] = ()
    """One for each mechanism. A user without any has no password, and can't log in with one."""
    roles: tuple[str, ...] = ()
    version: int = 0
    """Raised when the password changes."""
    created_ms: int = 0


class Role(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    roles: tuple[str, ...] = ()
    """Roles whose grants it has too."""
    created_ms: int = 0


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token by which a program authenticates as a user. Only a hash of it is stored."""

    id: str
    """Part of the token itself, by which it is found; not secret."""
    user: str
    digest: bytes
    """SHA-256 of the secret part, which has 256 random bits."""
    expires_ms: int | None = None
    note: str = ""
    created_ms: int = 0


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation on some resources that is allowed or denied to a principal or role. Denials win."""

    principal: str
    """The name of a user or role, or `EVERYBODY`."""
    operation: Operation
    kind: ResourceKind
    name: str
    """A name, the beginning of names, or a pattern of topics."""
    pattern: NamePattern = "literal"
    host: str = ANY_HOST
    is_denied: bool = False


OPERATIONS: tuple[Operation, ...] = get_args(Operation)
