"""INSERTs over HTTP: one row at a time from many clients, and a thousand rows at a time."""

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Section
from bench.ground import Ground, settle_disk
from bench.http.client import HttpClient
from bench.http.measuring import Rate, cpu_of, rate, rates, rounds
from bench.http.server import HttpServer, serving
from bench.http.tasks import Form, InsertRows

_TABLE = "bench.rows"
_BODY_BYTES = 100
_CLIENTS = 32
_MANY = 1_000
_FEW_CLIENTS = 4
_LEAST_SINGLE = 2_000
_LEAST_MANY = 100_000


def run(ground: Ground) -> Section:
    scale = ground.scale.http
    with serving(ground) as server, HttpClient(server) as client:
        server.sql(f"CREATE TABLE {_TABLE} (id BIGINT, body TEXT, PRIMARY KEY (id))")
        rows = _Rows(server, client)
        ground.say(f"INSERT, {_CLIENTS} clients")
        single = rounds(lambda work: rows.insert(work, 1, _CLIENTS, "parameters"), scale.single_rows, scale.rounds)
        written = rounds(lambda work: rows.insert(work, 1, _CLIENTS, "text"), scale.single_rows, scale.rounds)
        ground.say(f"INSERT, {_MANY:,} rows each")
        many = rounds(lambda work: rows.insert(work, _MANY, _FEW_CLIENTS, "text"), scale.many_rows, scale.rounds)
        runs = rounds(lambda work: rows.insert(work, _MANY, _FEW_CLIENTS, "parameters"), scale.many_rows, scale.rounds)
        rows.check()
    return Section(
        title="SQL: rows into a table",
        text=f"`INSERT` of rows of {_BODY_BYTES} B over HTTP, in a process of its own that keeps one request on its way for"
        " each client. Each is answered when the row and its change event are on the disk. Afterwards the table is counted and"
        " its keys are added up, and so are its change events.",
        figures=[
            Figure(
                name=f"one row each, {_CLIENTS} clients, parameters",
                ours=rates(single),
                unit="rows/s",
                bar=Bar("at least", _LEAST_SINGLE),
            ),
            Figure(
                name=f"one row each, {_CLIENTS} clients, values in the text",
                ours=rates(written),
                unit="rows/s",
                bar=Bar("at least", _LEAST_SINGLE),
            ),
            Figure(
                name=f"{_MANY:,} rows each, {_FEW_CLIENTS} clients, values in the text",
                ours=rates(many),
                unit="rows/s",
                bar=Bar("at least", _LEAST_MANY),
            ),
            Figure(
                name=f"{_MANY:,} rows each, {_FEW_CLIENTS} clients, lists of parameters",
                ours=rates(runs),
                unit="rows/s",
                bar=Bar("at least", _LEAST_MANY),
            ),
        ],
        remarks=[
            f"CPU of the server for a row, in this order: {cpu_of(single)}, {cpu_of(written)}, {cpu_of(many)}, {cpu_of(runs)}."
        ],
    )


class _Rows:
    """The rows that were written so far: ids from 0 on."""

    def __init__(self, server: HttpServer, client: HttpClient) -> None:
        self._server = server
        self._client = client
        self._written = 0

    def insert(self, rows: int, rows_a_request: int, connections: int, form: Form) -> Rate:
        settle_disk()
        task = InsertRows(
            table=_TABLE,
            first_id=self._written,
            rows=rows,
            rows_a_request=rows_a_request,
            body_bytes=_BODY_BYTES,
            connections=connections,
            form=form,
        )
        self._written += rows
        return rate(self._server, self._client, task, rows)

    def check(self) -> None:
        expected = [self._written, self._written * (self._written - 1) // 2]
        for found in (
            self._server.sql(f"SELECT count(*), sum(id) FROM {_TABLE}"),
            self._server.sql(f"SELECT count(*), sum(id) FROM table_changes('{_TABLE}') WHERE _change_type = 'insert'"),
        ):
            if [int(each) for each in found[0]] != expected:
                raise AuditFailure(f"{_TABLE} gives count and sum {found[0]}, and {expected} were acknowledged")
