"""One query, from its tree to its answer: prepared on the event loop, run in a thread, stopped from anywhere."""

import threading
from collections.abc import Mapping, Sequence

from sqlglot import exp

from tailrace.broker.broker import Broker
from tailrace.broker.scan import TopicView
from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.table import CHANGES_PREFIX
from tailrace.sql.parameters import Parameters, by_name
from tailrace.sql.places import place_of
from tailrace.sql.result import Result
from tailrace.sql.select.bounds import Bounds, bounds, question
from tailrace.sql.select.decoding import FieldReader
from tailrace.sql.select.literals import with_constants
from tailrace.sql.select.relations import Relation
from tailrace.sql.select.session import Session, Sessions, unknown_column
from tailrace.sql.select.sources import Named, Source, resolve
from tailrace.sql.select.system import NAMESPACE, SYSTEM_TABLES, SystemRelation
from tailrace.sql.select.tables import ReadTables, read_table
from tailrace.sql.select.topics import HIDDEN_COLUMNS, TOPIC_COLUMNS, TopicRelation
from tailrace.sql.select.translate import to_duckdb, with_column_names
from tailrace.sql.statements import Query

_STOP_AGAIN_SECONDS = 0.05


class Preparation:
    """Makes queries ready to run. Lives as long as the server."""

    def __init__(self, broker: Broker, tables: ReadTables, limits: Limits) -> None:
        self._broker = broker
        self._tables = tables
        self._limits = limits
        self._sessions = Sessions(limits)
        self.read_fields = FieldReader()

    async def prepare(self, query: Query, params: Parameters) -> "Execution":
        """Look up all that the query names. Topics are seen as they are now."""
        tree = with_constants(with_column_names(query.tree), by_name(query, params))
        sources = resolve(tree, self._find)
        views: dict[str, TopicView] = {}
        relations: dict[str, Relation] = {}
        for source in sources:
            named = source.named
            if named.kind in ("topic", "changes"):
                topic = named.name if named.kind == "topic" else CHANGES_PREFIX + named.name
                views[source.relation] = self._broker.view(topic)
            elif named.kind == "system":
                table = SYSTEM_TABLES[named.name]
                relations[source.relation] = SystemRelation(table, table.read(self._broker))
        # After the topics, so that a row which a record speaks of is there.
        for source in sources:
            if source.named.kind == "table" and source.named.table is not None:
                relations[source.relation] = await read_table(
                    self._tables, source.named.table, source.columns, source.where, self._limits
                )
        return Execution(query, tree, sources, relations, views, self._limits, self._sessions, self.read_fields)

    def close(self) -> None:
        self._sessions.close()

    def _find(self, name: str) -> Named | None:
        namespace, _, rest = name.lower().partition(".")
        if namespace == NAMESPACE:
            if rest not in SYSTEM_TABLES:
                raise SqlError(
                    f"there is no {name!r}; there are {', '.join(f'{NAMESPACE}.{table}' for table in SYSTEM_TABLES)}"
                )
            return Named("system", rest, list(SYSTEM_TABLES[rest].columns))
        table = self._broker.tables.find(name)
        if table is not None:
            return Named("table", table.name, [column.name for column in table.columns], table=table)
        live = self._broker.topics.find(name)
        return None if live is None else Named("topic", live.topic.name, list(TOPIC_COLUMNS), list(HIDDEN_COLUMNS))


class Execution:
    def __init__(
        self,
        query: Query,
        tree: exp.Expr,
        sources: Sequence[Source],
        relations: Mapping[str, Relation],
        views: Mapping[str, TopicView],
        limits: Limits,
        sessions: Sessions,
        read_fields: FieldReader,
    ) -> None:
        self._query = query
        self._tree = tree
        self._sources = sources
        self._relations = relations
        self._views = views
        self._limits = limits
        self._sessions = sessions
        self._read_fields = read_fields
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._stopped_by: TailraceError | None = None
        self._has_ended = threading.Event()

    def run(self) -> Result:
        """In a thread."""
        is_fit = False
        try:
            answer = self._run()
            is_fit = True
        except SqlError as error:
            if self._stopped_by is not None:
                raise self._stopped_by from error
            raise self._with_place(error) from error
        finally:
            with self._lock:
                session, self._session = self._session, None
            self._has_ended.set()
            if session is not None:
                self._sessions.give_back(session, is_fit=is_fit)
        return answer

    def stop(self, why: TailraceError) -> None:
        """From any thread. The query then fails with this error, unless it has ended."""
        with self._lock:
            is_first = self._stopped_by is None
            self._stopped_by = why
            if self._session is None:
                return
            self._session.stop()
        if is_first:
            threading.Thread(target=self._insist, name="tailrace-stop", daemon=True).start()

    def _insist(self) -> None:
        """Stop it again and again until it has ended: DuckDB forgets an interrupt that comes while a query begins."""
        while not self._has_ended.wait(_STOP_AGAIN_SECONDS):
            with self._lock:
                if self._session is not None:
                    self._session.stop()

    def _run(self) -> Result:
        session = self._sessions.take()
        with self._lock:
            self._session = session
            if self._stopped_by is not None:
                raise self._stopped_by
        session.begin()
        relations = {**self._relations, **self._topics(session)}
        return session.run(to_duckdb(self._tree, self._limits.query_rows + 1), relations)

    def _topics(self, session: Session) -> dict[str, Relation]:
        return {
            source.relation: TopicRelation(
                self._views[source.relation],
                source.columns,
                self._bounds(session, source),
                self._limits,
                self._read_fields,
            )
            for source in self._sources
            if source.relation in self._views
        }

    def _bounds(self, session: Session, source: Source) -> Bounds:
        if not source.conditions:
            return Bounds()
        return bounds(source.conditions, session.constants(question(source.conditions)))

    def _with_place(self, error: SqlError) -> SqlError:
        """With the place of the column that is not there, which DuckDB knows only in its own text."""
        name = unknown_column(error)
        if name is None or error.line is not None:
            return error
        for column in self._query.tree.find_all(exp.Column):
            place = place_of(column)
            if column.name.lower() == name.lower() and place is not None:
                return SqlError(f"there is no column {column.sql(dialect='postgres')}", *place)
        return error
