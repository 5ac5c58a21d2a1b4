"""INSERT INTO a table from a query that reads more than tables: topics, `system.*`, change feeds.

SQLite, which keeps the rows, knows none of these. The query is run first, and its rows are inserted in one transaction, as if
they had been given as values.
"""

import msgspec
from sqlglot import exp

from tailrace.model.errors import SqlError
from tailrace.sql.grammar.queries import query_of
from tailrace.sql.parameters import Parameters
from tailrace.sql.select.queries import Queries
from tailrace.sql.statements import Query, Write


class FillStatements:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def with_rows(self, write: Write, query: Query, params: Parameters) -> Write:
        """The INSERT with the rows of its query in the place of it."""
        if write.tree.args.get("conflict") is not None and write.parameters:
            raise SqlError("with ON CONFLICT the query can't have parameters", write.line, write.column)
        answer = await self._queries.run(query, params)
        if answer.truncated:
            raise SqlError("the query has more rows than query_rows allows; insert them in parts", write.line, write.column)
        names = tuple(str(number) for number in range(1, len(answer.columns) + 1))
        tree = write.tree.copy()
        row = exp.Tuple(expressions=[exp.Placeholder(this=name) for name in names])
        tree.set("expression", exp.Values(expressions=[row]))
        tree.set("with_", None)
        return msgspec.structs.replace(write, tree=tree, parameters=names, rows=list(answer.rows))


def source_of(write: Write) -> Query | None:
    """The query of an INSERT ... SELECT."""
    source = write.tree.expression
    if write.kind != "insert" or not isinstance(source, exp.Expression) or not isinstance(source, exp.Query):
        return None
    with_ = write.tree.args.get("with_")
    if with_ is not None:
        source = source.copy()
        source.set("with_", with_.copy())
    return query_of(source, write.text, write.parameters)
