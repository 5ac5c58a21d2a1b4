"""`CURRENT_USER` and its like: statements get the name of the principal that runs them, where principals are authenticated.

A statement that was parsed before is shared by all who send its text, and queries are analyzed in threads that know no
principal. So the name is written into a copy of the tree before anything looks at that.
"""

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.sql.analysis.session_values import with_session_user
from tailrace.sql.statements import CreateTableAsStatement, ExplainStatement, PostgresStatement, Statement, Write


def session_user(broker: Broker) -> str | None:
    """Return the name of the principal of the request; `None` if there is none that was authenticated."""
    if not broker.permissions.is_on:
        return None
    principal = current_principal()
    return None if principal.is_server else principal.name


def as_user(statement: Statement, user: str | None) -> Statement:
    """Return the statement as this user runs it."""
    if user is None:
        return statement
    if isinstance(statement, ExplainStatement):
        return msgspec.structs.replace(statement, statement=as_user(statement.statement, user))
    if isinstance(statement, CreateTableAsStatement):
        return msgspec.structs.replace(statement, query=as_user(statement.query, user))
    if not isinstance(statement, PostgresStatement) or (isinstance(statement, Write) and statement.rows is not None):
        return statement
    tree = with_session_user(statement.tree, statement.text, user)
    return statement if tree is statement.tree else msgspec.structs.replace(statement, tree=tree)
