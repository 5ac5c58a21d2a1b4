"""Runs EXPLAIN: finds out how a statement would run, and with ANALYZE runs it and measures that."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.errors import UnsupportedSqlError
from tailrace.model.text import counted
from tailrace.sql.explain.nodes import ExplainedPlan, PlanNode, json_result, text_result
from tailrace.sql.explain.writes import ExplainedWrite
from tailrace.sql.grammar.writes import query_of_insert
from tailrace.sql.handlers.create_table_as import CreateTableAsHandler
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, is_many
from tailrace.sql.results import Result
from tailrace.sql.select.queries import QueryRunner, QueryTables
from tailrace.sql.statements import CreateTableAsStatement, ExplainStatement, Query, Write
from tailrace.sql.tables.jobs import WriteTiming

RunWrite = Callable[[Write, Parameters, ReadAnswer, WriteTiming], Awaitable[Result]]


class ExplainHandler:
    def __init__(
        self,
        broker: Broker,
        tables: QueryTables,
        queries: QueryRunner,
        filling: CreateTableAsHandler,
        is_topic: Callable[[Write], bool],
        run_write: RunWrite,
    ) -> None:
        """`is_topic` tells whether a statement writes to a topic, and raises if it can't write to its target."""
        self._broker = broker
        self._tables = tables
        self._queries = queries
        self._filling = filling
        self._is_topic = is_topic
        self._run_write = run_write

    async def explain(self, asked: ExplainStatement, params: Parameters, answer: ReadAnswer) -> Result:
        statement = asked.statement
        if isinstance(statement, Query):
            found = await self._queries.explain(statement, params, answer, analyze=asked.analyze)
        elif isinstance(statement, Write):
            found = await self._write(statement, params, answer, analyze=asked.analyze)
        elif isinstance(statement, CreateTableAsStatement):
            found = await self._create_table_as(statement, params, answer, analyze=asked.analyze)
        else:
            raise UnsupportedSqlError("this statement can't be explained", asked.line, asked.column)
        show = json_result if asked.format == "json" else text_result
        return show(found, timing=asked.timing)

    async def _write(self, write: Write, params: Parameters, answer: ReadAnswer, *, analyze: bool) -> ExplainedPlan:
        started = time.perf_counter()
        if write.rows is not None:
            params = write.rows
        table = None if self._is_topic(write) else self._broker.tables.get(write.target)
        sources: Sequence[PlanNode] = ()
        is_searched = False
        if table is None:
            sources = await self._sources(write, params, answer)
            live = self._broker.topics.find_folded(write.target) or self._broker.topics.get(write.target)
            rows = counted(len(params), "row") if is_many(params, write) else None
            node = PlanNode("Publish to topic", live.topic.name, {"Rows": rows}, sources)
        else:
            analyzed = None
            if write.has_queries:
                analyzed, sources = await self._queries.explain_write(write, params, answer)
            explained = await asyncio.to_thread(ExplainedWrite, write, params, table, analyzed)
            if explained.search is not None:
                search, is_searched = explained.search, True
                steps = await self._tables.read_rows(f"EXPLAIN QUERY PLAN {search.sql}", [None] * search.count, table)
                details = {**search.node.details, "SQLite": "; ".join(str(row[3]) for row in steps)}
                sources = [search.node._replace(details=details), *sources]
            node = explained.node(sources)
        planned = time.perf_counter()
        root = PlanNode("Commit to the log", children=[node])
        if not analyze:
            return ExplainedPlan(root, (planned - started) * 1000)
        timing = WriteTiming()
        result = await self._run_write(write, params, answer, timing)
        took = (time.perf_counter() - planned) * 1000
        measured = node._replace(
            children=[child._replace(rows=result.affected) if is_searched else child for child in node.children],
            rows=result.affected,
            milliseconds=timing.run_seconds * 1000 if table is not None else None,
        )
        milliseconds = timing.commit_seconds * 1000 if table is not None else took
        root = root._replace(children=[measured], rows=result.affected, milliseconds=milliseconds)
        return ExplainedPlan(root, (planned - started) * 1000, took)

    async def _create_table_as(
        self, asked: CreateTableAsStatement, params: Parameters, answer: ReadAnswer, *, analyze: bool
    ) -> ExplainedPlan:
        started = time.perf_counter()
        definition = await self._filling.definition(asked, params)
        query = await self._queries.explain(asked.query, params, answer, analyze=False)
        node = PlanNode(
            "Create table",
            asked.name,
            {
                "Columns": [f"{column.name} {column.type}" for column in definition.columns],
                "Primary key": list(definition.primary_key),
                "Rows": None if asked.with_data else "none, because of WITH NO DATA",
            },
            [query.plan],
        )
        planned = time.perf_counter()
        if not analyze:
            return ExplainedPlan(node, (planned - started) * 1000)
        result = await self._filling.create(asked, params, answer)
        took = (time.perf_counter() - planned) * 1000
        return ExplainedPlan(node._replace(rows=result.affected, milliseconds=took), (planned - started) * 1000, took)

    async def _sources(self, write: Write, params: Parameters, answer: ReadAnswer) -> Sequence[PlanNode]:
        """Return the plan of the query of an INSERT."""
        if write.kind != "insert" or not write.has_queries:
            return ()
        query = query_of_insert(write)
        given = params if query.parameters else NO_PARAMETERS
        return [(await self._queries.explain(query, given, answer, analyze=False)).plan]
