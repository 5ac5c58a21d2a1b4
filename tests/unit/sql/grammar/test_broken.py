"""Text that is no SQL is refused at the word where it stops being SQL, in queries with PostgreSQL's words."""

import re

import pytest

from tailrace.model.errors import SqlSyntaxError, TailraceError
from tailrace.sql.grammar.lexer import read_tokens
from tailrace.sql.parse import parse


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT a FROM t WHERE a BETWEEN 1 2", (1, 35), 'syntax error at or near "2"'),
        ("SELECT a FROM t WHERE a BETWEEN 1", (1, 34), "syntax error at end of input"),
        ("SELECT a FROM t WHERE a BETWEEN NOT 1 AND 2", (1, 33), 'syntax error at or near "NOT"'),
        ("SELECT CASE WHEN a > 1 'x' END FROM t", (1, 24), "syntax error at or near \"'x'\""),
        ("SELECT CASE a THEN 1 END FROM t", (1, 15), 'syntax error at or near "THEN"'),
        ("SELECT CASE WHEN a THEN 1 ELSE 2 3 END FROM t", (1, 34), 'syntax error at or near "3"'),
        ("SELECT a\nFROM FROM t", (2, 6), 'syntax error at or near "FROM"'),
        ("SELECT DISTINCT FROM t", (1, 17), 'syntax error at or near "FROM"'),
        ("SELECT a FROM t WHERE a IS 42 NOT NULL", (1, 28), 'syntax error at or near "42"'),
        ("SELECT a FROM t WHERE a IN AND (1)", (1, 28), 'syntax error at or near "AND"'),
        ("SELECT a FROM t LEFT JOIN u", (1, 28), "syntax error at end of input"),
        ("SELECT a FROM t JOIN u USING ()", (1, 31), 'syntax error at or near ")"'),
        ("SELECT a FROM .t", (1, 15), 'syntax error at or near "."'),
        ("SELECT a FROM s..t", (1, 16), 'syntax error at or near ".."'),
        ("WITH c (SELECT 1) SELECT * FROM c", (1, 9), 'syntax error at or near "SELECT"'),
        (
            "SELECT a FROM t ORDER BY a AND DESC",
            (1, 32),
            'syntax error at or near "DESC"; DESC is a keyword: if you mean a name, write it in quotes ("desc")',
        ),
        ("SELECT a FROM t ORDER BY a NULLS", (1, 28), 'syntax error at or near "NULLS"'),
        ("SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND ROW) FROM t", (1, 64), 'syntax error at or near ")"'),
        ("SELECT CAST = (a AS integer) FROM t", (1, 13), 'syntax error at or near "="'),
        ("SELECT 'a' 'b'", (1, 12), "syntax error at or near \"'b'\""),
        ("SELECT a < < 2 FROM t", (1, 12), 'syntax error at or near "<"'),
        ("SELECT a > . 5 FROM t", (1, 12), 'syntax error at or near "."'),
        ("VALUES (1), foo (2)", (1, 13), 'syntax error at or near "foo"'),
        ("INSERT t VALUES (1)", (1, 8), 'syntax error at or near "t"'),
        ("INSERT INTO t (a b) VALUES (1, 2)", (1, 18), 'syntax error at or near "b"'),
        ("INSERT INTO t (42) VALUES (1)", (1, 16), 'syntax error at or near "42"'),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) UPDATE SET b = 1", (1, 42), 'syntax error at or near "UPDATE"'),
        ("UPDATE .t SET a = 1", (1, 8), 'syntax error at or near "."'),
        ("UPDATE t SET a = = 1", (1, 18), 'syntax error at or near "="'),
        ("UPDATE t SET a = 1 b = 2", (1, 20), 'syntax error at or near "b"'),
        ("SELECT * FORM t", (1, 10), "syntax error at or near \"FORM\"; did you mean 'FROM'?"),
        ("SELECT a FROM t x WERE a = 1", (1, 19), "syntax error at or near \"WERE\"; did you mean 'WHERE'?"),
        ("UPDATE t SET a = 1 WERE b = 2", (1, 20), "syntax error at or near \"WERE\"; did you mean 'WHERE'?"),
        (
            "ALTER TOPIC t ADD SOURCE s ON INSRT",
            (1, 31),
            "expected INSERT, UPDATE or DELETE, found 'INSRT'; did you mean 'INSERT'?",
        ),
        ("CONSUME FROM t GROUP g", (1, 22), "the name of the group must be in single quotes: 'g'"),
        ('CONSUME FROM t GROUP "g"', (1, 22), "the name of the group must be in single quotes: 'g'"),
        ("INSERT OR REPLACE INTO t VALUES (1)", (1, 8), 'syntax error at or near "OR"'),
        ("DELETE t", (1, 8), 'syntax error at or near "t"'),
        ("DELETE FROM .t", (1, 13), 'syntax error at or near "."'),
        ("DELETE FROM t WHERE a = 1 garbage more", (1, 27), 'syntax error at or near "garbage"'),
        ("ALTER TOPIC t ADD SOURCE s ON INSERT WHERE (a BETWEEN 1 2)", (1, 57), 'syntax error at or near "2"'),
        ("ALTER TOPIC t ADD SOURCE s ON INSERT WHERE (CASE WHEN a 1 END = 1)", (1, 57), 'syntax error at or near "1"'),
    ],
)
def test_broken_text_is_refused_at_its_place(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(SqlSyntaxError, match=re.escape(message)) as raised:
        parse(text)
    assert (raised.value.line, raised.value.column) == place


WELL_FORMED = [
    "SELECT a, t.b c FROM s.t AS t WHERE a NOT BETWEEN -1 AND b * 2 AND b IN (1, 2) OR NOT a LIKE 'x!_%' ESCAPE '!'",
    'SELECT "offset", partition, timestamp, key, value FROM t WHERE "offset" > 5 ORDER BY cursor DESC NULLS LAST LIMIT 3',
    "SELECT CASE a WHEN 1 THEN 'x' ELSE 'y' END, CASE WHEN a THEN b END AS c FROM t",
    "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c), d AS (SELECT 2) SELECT * FROM c CROSS JOIN d",
    "SELECT sum(a) FILTER (WHERE b) OVER (PARTITION BY c ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT rank() OVER w FROM t WINDOW w AS (ORDER BY a)",
    "SELECT a FROM t LEFT JOIN u USING (id) JOIN v ON v.a = t.a NATURAL JOIN w, LATERAL (SELECT 1) AS l",
    "SELECT a::numeric(10, 2), CAST(b AS double precision), c::timestamp with time zone, d::text[] FROM t",
    "SELECT extract(year FROM a), substring(b FROM 1 FOR 2), trim(BOTH 'x' FROM c), position('x' IN d), left(e, 2) FROM t",
    "SELECT interval '1 day', timestamp '2020-01-01', now() - interval '1' hour, a AT TIME ZONE 'UTC' FROM t",
    "SELECT value -> 'a' ->> 'b', ARRAY[1, 2], a[1], a[1:2], a[:2] FROM t",
    "SELECT list_transform(a, x -> x + 1), count(DISTINCT b), string_agg(c, ',' ORDER BY d) FROM t",
    "(SELECT 1) UNION ALL (SELECT 2) ORDER BY 1",
    "SELECT * FROM ((SELECT 1) UNION (SELECT 2)) AS x",
    "SELECT * FROM table_changes('s.t', 5) AS c (a, b) WHERE _change_type IN ('insert')",
    "SELECT a = ANY (SELECT 1), (a, b) = (1, 2), EXISTS (SELECT 1), a IS NOT DISTINCT FROM b, -(-a) FROM t",
    "SELECT a FROM t GROUP BY ROLLUP (a), GROUPING SETS ((a), ()) HAVING count(*) > 1",
    "SELECT 'a'\n'b'",
    "SELECT a << 2, a >> 1, a < 1, a > .5, -.5, 1.5e3, a <> b, ~a FROM t",
    "SELECT ?::integer, :a::text, a::numeric::text FROM t WHERE a = ?::uuid",
    "INSERT INTO s.t AS x (a) VALUES (DEFAULT), (?) ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE x.a > 1 RETURNING *, a",
    "INSERT INTO s.t DEFAULT VALUES",
    "INSERT INTO s.t (SELECT 1)",
    "WITH c AS (SELECT 1 AS x) UPDATE s.t AS y SET (a, b) = (1, 2), c = :c FROM c WHERE y.a = c.x RETURNING a",
    "DELETE FROM s.t x WHERE x.a IN (SELECT b FROM u) RETURNING a",
]


@pytest.mark.parametrize("text", WELL_FORMED)
def test_what_is_sql_passes(text: str) -> None:
    assert len(parse(text)) == 1


@pytest.mark.parametrize("text", WELL_FORMED)
def test_a_word_that_is_out_of_place_is_an_error(text: str) -> None:
    """A comma, an operator or a word of SQL after any word: none of it is overlooked."""
    for token in read_tokens(text):
        for sign in ("= ,", "THEN THEN"):
            with pytest.raises(TailraceError):
                parse(f"{text[: token.end]} {sign} {text[token.end :]}")
