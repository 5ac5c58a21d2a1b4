"""What the HTTP surface needs of `sql.engine`, and what stands in for it where there is none."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.errors import InvalidRequestError
from tailrace.sql.answer_stream import AnswerStream, RowEncoder
from tailrace.sql.result import Result

SqlParameters = Sequence[Any] | Mapping[str, Any]


class Engine(Protocol):
    async def execute(self, text: str, params: SqlParameters = (), answer: ReadAnswer | None = None) -> list[Result]: ...
    async def stream(self, text: str, params: SqlParameters, encoder: RowEncoder, answer: ReadAnswer) -> AnswerStream: ...


class NoEngine:
    """Of a server without SQL, as tests have it."""

    async def execute(self, text: str, params: SqlParameters = (), answer: ReadAnswer | None = None) -> list[Result]:
        raise InvalidRequestError("this server runs no SQL")

    async def stream(self, text: str, params: SqlParameters, encoder: RowEncoder, answer: ReadAnswer) -> AnswerStream:
        raise InvalidRequestError("this server runs no SQL")
