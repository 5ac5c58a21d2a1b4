"""Queries over fields of JSON in records answer alike whether a compiled loop or the exact functions have read them."""

import json

from tailrace.model.record import Message
from tests.support.aio import on_loop
from tests.support.queries import asking

QUERIES = (
    "SELECT value ->> 'k', count(*), sum((value ->> 'x')::bigint) FROM app.a GROUP BY 1 ORDER BY 1",
    "SELECT value ->> 'k', count(*) FROM app.a GROUP BY value ->> 'k' HAVING max(value ->> 'x') > '3' ORDER BY 2 DESC, 1",
    """SELECT "offset", value ->> 'x', (value ->> 'f')::double precision FROM app.a WHERE value ->> 'k' = 'k3' ORDER BY 1""",
    """SELECT "offset", value, value ->> 'k', value -> 'n' ->> 'm' FROM app.a WHERE length(value) > 20 ORDER BY 1""",
    "SELECT count(*) FROM app.a WHERE (value ->> 'b')::boolean",
    """SELECT a."offset", b."offset" FROM app.a a JOIN app.b b ON a.value ->> 'k' = b.value ->> 'k' ORDER BY 1, 2""",
    """SELECT "offset" FROM app.b WHERE EXISTS (SELECT 1 FROM app.a WHERE a.value ->> 'x' = b.value ->> 'x') ORDER BY 1""",
    "SELECT DISTINCT value ->> 'missing', value ->> 'n' FROM app.a ORDER BY 1, 2",
    "WITH c AS (SELECT value ->> 'k' AS k, value ->> 'x' AS x FROM app.a) SELECT k, max(x) FROM c GROUP BY k ORDER BY k",
    """SELECT "offset", (value ->> 'x')::bigint, (value ->> 'x')::integer FROM app.a WHERE (value ->> 'x')::bigint > 30""",
    """SELECT (value ->> 'b')::boolean, count((value ->> 'x')::int), max(value ->> 'x') FROM app.a GROUP BY 1 ORDER BY 1""",
    """SELECT upper(value ->> 'k') || '!', value ->> 'f' FROM app.a ORDER BY value ->> 'x' NULLS FIRST, "offset" LIMIT 9""",
)


def values() -> list[bytes | None]:
    plain = [{"k": f"k{n % 5}", "x": n, "b": n % 2 == 0, "f": n / 4, "n": {"m": n}} for n in range(40)]
    texts = [json.dumps(one).encode() for one in plain]
    other = (b'{"k":"k3","k":"k4","x":1}', b'{"k":"a\\"b"}', b"[1]", b"not JSON", b'{"k":null}', b"", b'{"x":-0,"k":"k1"}')
    return [*texts, *other, None, b'{"k":"k3","x":5,}', b'{"x":1e2,"k":"k2"}', '{"k":"\u00fc"}'.encode()]


@on_loop
async def test_fields_are_the_same_by_the_loop_and_by_the_functions() -> None:
    async with asking() as ask:
        for topic in ("app.a", "app.b"):
            await ask.broker.topics.create(topic)
        await ask.broker.publisher.publish([Message("app.a", value) for value in values()])
        await ask.broker.publisher.publish([Message("app.b", value) for value in values()[::7]])
        exact = [await ask.rows(text) for text in QUERIES]
        sources = ask.queries._sources
        assert sources is not None
        assert sources.read_fields.json_kernels() is None
        sources.read_fields.load()
        assert sources.read_fields.json_kernels() is not None
        for text, expected in zip(QUERIES, exact, strict=True):
            assert await ask.rows(text) == expected, text
        assert sum(map(len, exact)) > 60
