"""CREATE VIEW and DROP VIEW: the query is analyzed, and kept as it was written with the columns that it has now."""

from tailrace.broker.broker import Broker
from tailrace.model.errors import SqlError
from tailrace.model.limits import Limits
from tailrace.sql.results import Result
from tailrace.sql.select.queries import QueryRunner
from tailrace.sql.statements import CreateViewStatement, DropViewStatement

_WRONG_TYPE = "42809"
_DUPLICATE_COLUMN = "42701"
_SYNTAX_ERROR = "42601"


class ViewHandler:
    def __init__(self, broker: Broker, queries: QueryRunner, limits: Limits) -> None:
        self._broker = broker
        self._queries = queries
        self._limits = limits

    async def create(self, asked: CreateViewStatement) -> Result:
        # Arrow is loaded with the first query, not with the server.
        outline, found = await self._queries.outline(asked.query)
        from tailrace.sql.select.views import sources_of, view_columns

        if len(asked.columns) > len(outline.names):
            raise SqlError(
                "CREATE VIEW specifies more column names than columns", asked.line, asked.column, sqlstate=_SYNTAX_ERROR
            )
        names = [*asked.columns, *outline.names[len(asked.columns) :]]
        for name in names:
            if names.count(name) > 1:
                raise SqlError(
                    f'column "{name}" specified more than once; name the columns of the view',
                    asked.line,
                    asked.column,
                    sqlstate=_DUPLICATE_COLUMN,
                )
        columns = view_columns(names, outline.declared_types)
        sources = sources_of(outline, found, self._broker)
        await self._broker.views.create(asked.name, columns, asked.query.text, sources, or_replace=asked.or_replace)
        return Result(status="CREATE VIEW")

    async def drop(self, asked: DropViewStatement) -> Result:
        broker = self._broker
        if broker.views.find(asked.name) is None:
            what = "table" if broker.tables.find(asked.name) is not None else "topic"
            if what == "table" or broker.topics.find(asked.name) is not None:
                raise SqlError(
                    f"{asked.name!r} is a {what}, not a view; use DROP {what.upper()}",
                    asked.line,
                    asked.column,
                    sqlstate=_WRONG_TYPE,
                )
            if asked.if_exists:
                return Result(status="DROP VIEW, which does not exist")
        await broker.views.drop(asked.name, cascade=asked.cascade)
        return Result(status="DROP VIEW")
