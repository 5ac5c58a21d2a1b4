"""REDRIVE DEAD LETTERS OF: which letters a condition means is asked of DuckDB, as for a SELECT; the broker puts them back."""

from collections.abc import Iterable

from sqlglot import exp

from tailrace.broker.broker import Broker
from tailrace.broker.topics.live_topic import LiveTopic
from tailrace.model.errors import SqlError
from tailrace.model.table import ColumnType
from tailrace.sql.grammar.queries import query_of
from tailrace.sql.result import Result, ResultColumn
from tailrace.sql.select.queries import Queries
from tailrace.sql.statements import Redrive

_REDRIVEN = (
    ResultColumn("topic", ColumnType("text")),
    ResultColumn("redriven", ColumnType("bigint")),
    ResultColumn("left_out", ColumnType("bigint")),
)


class RedriveStatements:
    def __init__(self, broker: Broker, queries: Queries) -> None:
        self._broker = broker
        self._queries = queries

    async def redrive(self, asked: Redrive) -> Result:
        if asked.limit is not None and asked.limit < 1:
            raise SqlError(f"LIMIT is {asked.limit}; it must be at least 1", asked.line, asked.column)
        redrives = self._broker.redrives
        letters = redrives.letters_of(asked.topic)
        places: Iterable[tuple[int, int]] = redrives.all_left(letters)
        truncated = False
        if asked.where is not None:
            answer = await self._queries.run(query_of(self._tree(letters, asked.where), asked.text, ()), ())
            places = ((int(str(partition)), int(str(offset))) for partition, offset in answer.rows)
            truncated = answer.truncated
        put_back, left_out = await redrives.redrive(asked.topic, places, asked.limit)
        topic = self._broker.topics.get(asked.topic).topic.name
        return Result(
            _REDRIVEN, [(topic, put_back, left_out)], status=f"REDRIVE {put_back}", affected=put_back, truncated=truncated
        )

    def _tree(self, letters: LiveTopic, where: exp.Expression) -> exp.Expression:
        """The places of the letters that are meant and were not put back."""
        partition, offset = exp.column("partition", quoted=True), exp.column("offset", quoted=True)
        left = exp.or_(
            *(
                exp.and_(partition.copy().eq(number), offset.copy() >= int(first))
                for number, first in enumerate(self._broker.redrives.first_left(letters))
            )
        )
        name = ".".join(f'"{part}"' for part in letters.topic.name.split("."))
        chosen = exp.select(partition, offset).from_(exp.to_table(name, dialect="postgres"))
        return chosen.where(exp.paren(where.copy()), left).order_by(partition.copy(), offset.copy())
