"""Statements about users, roles, tokens, grants and quotas.

CREATE USER [IF NOT EXISTS] name [PASSWORD 'text'] [ROLE role, ...]
ALTER USER name PASSWORD 'text' | NULL
ALTER USER name | DEFAULT [CLIENT ID 'name' | DEFAULT] SET QUOTA (kind = value, ...) | RESET QUOTA [(kind, ...)]
ALTER CLIENT ID 'name' | DEFAULT SET QUOTA (kind = value, ...) | RESET QUOTA [(kind, ...)]
DROP USER [IF EXISTS] name
CREATE ROLE name
DROP ROLE [IF EXISTS] name
GRANT role, ... TO name, ...
REVOKE role, ... FROM name, ...
GRANT operation, ... ON resources TO name, ... | PUBLIC
REVOKE operation, ... ON resources FROM name, ... | PUBLIC
CREATE TOKEN FOR user [EXPIRES 'interval or time'] [NOTE 'text']
DROP TOKEN 'id'
SHOW GRANTS [FOR name]

resources: TOPIC | TABLE | GROUP | QUEUE | SOURCE | TRANSACTIONAL ID name, ... or PREFIX 'beginning of names'
    | PATTERN 'orders.>', ... | ALL TOPICS | TABLES | GROUPS | QUEUES | SOURCES | TRANSACTIONAL IDS | SERVER

The beginning of names is also written with a star behind it, as in `TABLE app.*`, but not for topics, whose patterns look so.
What is read of a statement with a password is not quoted in errors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tailrace.model.errors import InvalidPatternError, InvalidRequestError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern
from tailrace.model.quota import COUNTED_KINDS, DEFAULT, QUOTA_KINDS, QuotaKind, parse_quota
from tailrace.model.security import ANY_NAME, CLUSTER, EVERYBODY, OPERATIONS_ON, Operation, ResourceKind
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.grammar.token_reader import TokenReader
from tailrace.sql.statements import (
    AlterQuotaStatement,
    CreateRoleStatement,
    CreateTokenStatement,
    CreateUserStatement,
    DropRoleStatement,
    DropTokenStatement,
    DropUserStatement,
    GrantedResource,
    GrantRoleStatement,
    GrantStatement,
    RevokeRoleStatement,
    RevokeStatement,
    Secret,
    SetPasswordStatement,
    ShowGrantsStatement,
    Statement,
)
from tailrace.sql.text_positions import TextPosition

_USER = "the name of a user"
_ROLE = "the name of a role"
_MEMBER = "the name of a user or role"
_EVERYBODY = "public"
_OPERATIONS: Mapping[str, Operation] = {
    "SELECT": "select",
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "PUBLISH": "publish",
    "CONSUME": "consume",
    "CREATE": "create",
    "ALTER": "alter",
    "DROP": "drop",
    "DESCRIBE": "describe",
    "ADMIN": "admin",
    "ALL": "all",
}
_KINDS: Mapping[str, ResourceKind] = {
    "TOPIC": "topic",
    "TABLE": "table",
    "GROUP": "group",
    "QUEUE": "queue",
    "SOURCE": "source",
    "TRANSACTIONAL ID": "transactional_id",
}
_ALL_OF: Mapping[str, ResourceKind] = {f"ALL {phrase}S": kind for phrase, kind in _KINDS.items()}


def create_user(reader: TokenReader, text: str) -> Statement:
    reader.conceals = True
    reader.expect("CREATE USER")
    if_not_exists = reader.take("IF NOT EXISTS")
    name = _new_name(reader, _USER)
    has_password = reader.take("PASSWORD")
    password = _password(reader) if has_password else None
    has_roles = reader.take("ROLE")
    roles = _names(reader, _ROLE) if has_roles else ()
    left = ["PASSWORD"] * (not has_password and not has_roles) + ["ROLE"] * (not has_roles)
    reader.expect_end(", ".join(left))
    return CreateUserStatement(text="CREATE USER", name=name, password=password, roles=roles, if_not_exists=if_not_exists)


def alter_user(reader: TokenReader, text: str) -> Statement:
    reader.conceals = True
    reader.expect("ALTER USER")
    is_default = any(reader.sees(f"DEFAULT {word}") for word in ("SET", "RESET", "CLIENT ID"))
    name = DEFAULT if is_default and reader.take("DEFAULT") else reader.name(_USER)
    if any(map(reader.sees, ("SET", "RESET", "CLIENT ID"))):
        reader.conceals = False
        client_id = _client_id(reader) if reader.take("CLIENT ID") else None
        return _alter_quota(reader, "ALTER USER", name, client_id)
    if not reader.take("PASSWORD"):
        reader.fail("PASSWORD, SET QUOTA, RESET QUOTA or CLIENT ID")
    password = _password(reader)
    reader.expect_end()
    return SetPasswordStatement(text="ALTER USER", name=name, password=password)


def alter_client_id(reader: TokenReader, text: str) -> Statement:
    reader.expect("ALTER CLIENT ID")
    return _alter_quota(reader, "ALTER CLIENT ID", None, _client_id(reader))


def drop_user(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP USER")
    if_exists = reader.take("IF EXISTS")
    name = reader.name(_USER)
    reader.expect_end()
    return DropUserStatement(text="DROP USER", name=name, if_exists=if_exists)


def create_role(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE ROLE")
    name = _new_name(reader, _ROLE)
    reader.expect_end()
    return CreateRoleStatement(text="CREATE ROLE", name=name)


def drop_role(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP ROLE")
    if_exists = reader.take("IF EXISTS")
    name = reader.name(_ROLE)
    reader.expect_end()
    return DropRoleStatement(text="DROP ROLE", name=name, if_exists=if_exists)


def create_token(reader: TokenReader, text: str) -> Statement:
    reader.expect("CREATE TOKEN FOR")
    user = reader.name(_USER)
    has_end = reader.take("EXPIRES")
    expires = reader.string("the interval or the time after which the token expires") if has_end else None
    has_note = reader.take("NOTE")
    note = reader.string("the note") if has_note else ""
    left = ["EXPIRES"] * (not has_end and not has_note) + ["NOTE"] * (not has_note)
    reader.expect_end(", ".join(left))
    return CreateTokenStatement(text="CREATE TOKEN", user=user, expires=expires, note=note)


def drop_token(reader: TokenReader, text: str) -> Statement:
    reader.expect("DROP TOKEN")
    token_id = reader.string("the id of the token")
    reader.expect_end()
    return DropTokenStatement(text="DROP TOKEN", token_id=token_id)


def show_grants(reader: TokenReader, text: str) -> Statement:
    reader.expect("SHOW GRANTS")
    principal = _member(reader) if reader.take("FOR") else None
    reader.expect_end("" if principal else "FOR")
    return ShowGrantsStatement(text="SHOW GRANTS", principal=principal)


def grant(reader: TokenReader, text: str) -> Statement:
    reader.expect("GRANT")
    if not reader.comes_before("ON", "TO"):
        roles = _roles(reader, "TO")
        return GrantRoleStatement(text="GRANT", roles=roles, members=_members_to_end(reader))
    operations, resources = _granted(reader)
    reader.expect("TO")
    return GrantStatement(text="GRANT", operations=operations, resources=resources, principals=_members_to_end(reader, _member))


def revoke(reader: TokenReader, text: str) -> Statement:
    reader.expect("REVOKE")
    if not reader.comes_before("ON", "FROM"):
        roles = _roles(reader, "FROM")
        return RevokeRoleStatement(text="REVOKE", roles=roles, members=_members_to_end(reader))
    operations, resources = _granted(reader)
    reader.expect("FROM")
    return RevokeStatement(
        text="REVOKE", operations=operations, resources=resources, principals=_members_to_end(reader, _member)
    )


def _alter_quota(reader: TokenReader, text: str, user: str | None, client_id: str | None) -> Statement:
    is_set = reader.one_of("SET QUOTA", "RESET QUOTA") == "SET QUOTA"
    quotas: dict[QuotaKind, float | None] = {}
    if is_set or not reader.is_at_end:
        reader.expect_open()
        while True:
            kind = _quota_kind(reader, client_id)
            if kind in quotas:
                reader.reject(f"{kind} is named twice; remove one")
            quotas[kind] = _quota(reader, kind) if is_set else None
            if reader.closes():
                break
    else:
        quotas = dict.fromkeys(kind for kind in QUOTA_KINDS if client_id is None or kind not in COUNTED_KINDS)
    reader.expect_end()
    return AlterQuotaStatement(text=text, user=user, client_id=client_id, quotas=tuple(quotas.items()))


def _quota_kind(reader: TokenReader, client_id: str | None) -> QuotaKind:
    word = reader.word("the name of a quota").lower()
    kind = next((one for one in QUOTA_KINDS if one == word), None)
    if kind is None:
        reader.reject(f"there is no quota {word!r}; there are {', '.join(QUOTA_KINDS)}{did_you_mean(word, QUOTA_KINDS)}")
    if client_id is not None and kind in COUNTED_KINDS:
        reader.reject(f"{kind} are counted for users; leave CLIENT ID out")
    return kind


def _quota(reader: TokenReader, kind: QuotaKind) -> float:
    reader.expect_sign("=")
    position = reader.position
    text = reader.quantity(f"the quota of {kind}")
    try:
        return parse_quota(kind, text)
    except InvalidRequestError as error:
        reader.reject(str(error), position)


def _client_id(reader: TokenReader) -> str:
    if reader.take("DEFAULT"):
        return DEFAULT
    name, is_prefix = reader.name_or_prefix("the client id")
    if is_prefix:
        reader.reject("a quota is for one client id, or for DEFAULT")
    return name


def _new_name(reader: TokenReader, what: str) -> str:
    position = reader.position
    name = reader.name(what)
    if name.lower() == _EVERYBODY:
        reader.reject(f"PUBLIC stands for everybody, and can't be {what}", position)
    return name


def _password(reader: TokenReader) -> Secret | None:
    value = reader.value("the password in single quotes, a parameter, or NULL", str)
    if value is None:
        return None
    if not isinstance(value, str):
        reader.reject("the password must be a string in single quotes")
    return Secret(value)


def _names(reader: TokenReader, what: str) -> tuple[str, ...]:
    names = [reader.name(what)]
    while reader.takes_comma():
        names.append(reader.name(what))
    return tuple(dict.fromkeys(names))


def _roles(reader: TokenReader, end: str) -> tuple[str, ...]:
    """Read the roles of a GRANT or REVOKE, and the keyword behind them."""
    start = reader.position
    roles = _names(reader, _ROLE)
    operation = next((role.upper() for role in roles if role.upper() in _OPERATIONS and role.upper() != "ADMIN"), None)
    if operation is not None:
        reader.reject(f"{operation} is not granted without its object: write {operation} ON TABLE name, for example", start)
    if not reader.take(end):
        reader.fail(f"a comma or {end}")
    return roles


def _member(reader: TokenReader) -> str:
    return EVERYBODY if reader.take("PUBLIC") else reader.name(_MEMBER)


def _members_to_end(
    reader: TokenReader, read: Callable[[TokenReader], str] = lambda reader: reader.name(_MEMBER)
) -> tuple[str, ...]:
    found = [read(reader)]
    while reader.takes_comma():
        found.append(read(reader))
    reader.expect_end("a comma")
    return tuple(dict.fromkeys(found))


def _granted(reader: TokenReader) -> tuple[tuple[Operation, ...], tuple[GrantedResource, ...]]:
    """Read the operations and what they are granted on."""
    words: list[tuple[str, TextPosition]] = []
    while not words or reader.takes_comma():
        position = reader.position
        words.append((reader.one_of(*_OPERATIONS), position))
        if words[-1][0] == "ALL":
            reader.take("PRIVILEGES")
    reader.expect("ON")
    phrase, kind, resources = _resources(reader)
    there_are = OPERATIONS_ON[kind]
    operations: dict[Operation, None] = {}
    for word, position in words:
        operation = _OPERATIONS[word]
        if operation not in there_are:
            known = ", ".join(one for one, meant in _OPERATIONS.items() if meant in there_are)
            reader.reject(f"{word} can't be granted on {phrase}; use {known}", position)
        operations[operation] = None
        if operation == "alter" and "alter_configs" in there_are:
            operations["alter_configs"] = None
    return tuple(operations), tuple(resources)


def _resources(reader: TokenReader) -> tuple[str, ResourceKind, Sequence[GrantedResource]]:
    """Read what something is granted on. Also returned is what it is called, and its kind."""
    position = reader.position
    phrase = reader.one_of(*_KINDS, "PATTERN", *_ALL_OF, "SERVER")
    if phrase == "SERVER":
        return "the SERVER", "cluster", [GrantedResource("cluster", CLUSTER, "literal", position)]
    if phrase in _ALL_OF:
        return phrase, _ALL_OF[phrase], [GrantedResource(_ALL_OF[phrase], ANY_NAME, "literal", position)]
    read = _pattern if phrase == "PATTERN" else _named
    kind: ResourceKind = "topic" if phrase == "PATTERN" else _KINDS[phrase]
    found = [read(reader, kind, phrase)]
    while reader.takes_comma():
        found.append(read(reader, kind, phrase))
    return f"a {phrase}", kind, found


def _pattern(reader: TokenReader, kind: ResourceKind, phrase: str) -> GrantedResource:
    position = reader.position
    text = reader.string("the pattern")
    try:
        parse_pattern(text, DEFAULT_LIMITS)
    except InvalidPatternError as error:
        reader.reject(str(error), position)
    return GrantedResource("topic", text, "pattern", position)


def _named(reader: TokenReader, kind: ResourceKind, phrase: str) -> GrantedResource:
    position = reader.position
    what = f"the name of a {phrase.lower()}"
    if reader.take("PREFIX"):
        text = reader.string("the beginning of names")
        if not text:
            _all_of(reader, phrase, position)
        return GrantedResource(kind, text, "prefixed", position)
    name, is_prefix = reader.name_or_prefix(what)
    if is_prefix and kind == "topic":
        reader.reject(
            f"names of topics are granted by a pattern: ON PATTERN '{name}>' or ON PATTERN '{name}*'"
            if name.endswith(".")
            else f"the beginning of a topic's name is granted by ON TOPIC PREFIX '{name}', and whole parts by ON PATTERN 'a.>'",
            position,
        )
    if not name:
        _all_of(reader, phrase, position)
    return GrantedResource(kind, name, "prefixed" if is_prefix else "literal", position)


def _all_of(reader: TokenReader, phrase: str, position: TextPosition) -> NoReturn:
    reader.reject(f"this stands for every name; write ON ALL {phrase}S", position)
