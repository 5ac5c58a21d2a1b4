"""Checks, unique indexes and the numbers of identity columns are there after a kill, and when the rows are made again."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tailrace.sql.tables.tables import FILE_NAME
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


def sql(server: ServerProcess, text: str) -> httpx.Response:
    return httpx.post(f"{server.url}/api/sql", json={"sql": text}, timeout=PATIENCE_SECONDS)


def rows(server: ServerProcess, text: str) -> list[list[object]]:
    return list(sql(server, text).raise_for_status().json()["rows"])


def refused(server: ServerProcess, text: str) -> str:
    answer = sql(server, text)
    assert answer.status_code == 409, answer.text
    return str(answer.json()["detail"])


def keep(folder: Path) -> None:
    """Leave the file of the rows as the kill left it."""


def remove(folder: Path) -> None:
    for path in folder.glob(f"{FILE_NAME}*"):
        path.unlink()


@pytest.mark.parametrize("lose", [keep, remove])
def test_constraints_and_numbers_survive_a_kill(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    with ServerProcess(tmp_path / "data") as server:
        sql(
            server,
            "CREATE TABLE shop.orders (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, code VARCHAR(8) UNIQUE,"
            " price REAL CHECK (price > 0), at TIME)",
        ).raise_for_status()
        seen = [
            row[0]
            for number in range(5)
            for row in rows(server, f"INSERT INTO shop.orders (code, price) VALUES ('c{number}', 0.1) RETURNING id")
        ]
        # A number whose statement failed is left out, and that of a row that is gone is not given out again.
        assert "orders_price_check" in refused(server, "INSERT INTO shop.orders (code, price) VALUES ('x', -1)")
        seen += [row[0] for row in rows(server, "INSERT INTO shop.orders (code, price) VALUES ('c9', 1) RETURNING id")]
        sql(server, "DELETE FROM shop.orders WHERE code = 'c9'").raise_for_status()
        server.kill()
        lose(tmp_path / "data")
        server.start()
        assert "orders_code_key" in refused(server, "INSERT INTO shop.orders (code, price) VALUES ('c1', 1)")
        assert "orders_price_check" in refused(server, "UPDATE shop.orders SET price = 0 WHERE code = 'c1'")
        new = rows(server, "INSERT INTO shop.orders (code, price) VALUES ('n', 2), ('m', 3) RETURNING id")
        assert min(int(str(row[0])) for row in new) > max(int(str(number)) for number in seen)
        assert rows(server, "SELECT price, code FROM shop.orders WHERE code = 'c1'") == [[0.1, "c1"]]
        assert rows(server, "SELECT count(*) FROM shop.orders") == [[7]]
