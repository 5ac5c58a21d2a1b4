"""The pipeline on a standalone cluster whose workers have nothing but Python.

`tests/compat/test_cluster.py` is the long form: a worker is killed, spark-submit, and workers that can't run our tasks.
"""

from pathlib import Path

from tailrace.pipeline.worker_archive import make_archive
from tests.support.clustered_pipeline import TOPICS, create_routed_table, flags, other_lines, until_routed, write
from tests.support.pipeline import CommandProcess
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer
from tests.support.routed_tables import RoutedTables
from tests.support.spark_cluster import LOCAL, StandaloneCluster


def test_workers_without_packages_route_and_read_snapshots_exactly_once_with_the_archive(
    tables: RoutedTables, tmp_path: Path
) -> None:
    archive = make_archive(tmp_path / "tailrace-env.tar.gz").path
    password = tmp_path / "password"
    password.write_text(PASSWORDS[APP])
    create_routed_table(tables)
    write(tables, 0, 1_000)
    with (
        PostgresServer(tmp_path / "postgres") as postgres,
        postgres.connect() as connection,
        StandaloneCluster(tmp_path / "cluster") as cluster,
        CommandProcess(tmp_path / "logs", "pipeline", *flags(tables, cluster.url, archive), environment=LOCAL) as pipeline,
    ):
        pipeline.await_line("the pipeline is running")
        connection.execute("CREATE TABLE items AS SELECT id, md5(id::text) AS body FROM generate_series(1, 5000) AS id")
        url = f"postgresql://{APP}@127.0.0.1:{postgres.port}/{DATABASE}"
        tables.api.sql(f"CREATE SOURCE shop FROM POSTGRES '{url}' WITH (password_file = '{password}')")
        pipeline.await_line("snapshots: 5,000 rows read by 1 task")
        until_routed(tables, pipeline)
        assert other_lines(pipeline) == []
        assert pipeline.terminate() == 0
    tables.check(TOPICS)
    assert tables.api.sql("SELECT count(*) FROM shop.public.items") == [[5_000]]
