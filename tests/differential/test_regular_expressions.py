"""Regular expressions made at random are matched by PostgreSQL and by Tailrace, with all that their groups captured."""

import random
from typing import Any

import psycopg
import pytest

from tailrace.sql.functions.regular_expression_matcher import compiled
from tailrace.sql.functions.text_functions import TextError
from tests.differential.postgres import running_postgres

PATTERNS = 400
_QUERY = "SELECT array_agg(coalesce(array_to_string(m, '|', '~'), '')) AS found FROM regexp_matches({}, {}, {}) AS m"
_QUANTIFIERS = ("*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "{0,1}", "{1}", "{0}", "{1,1}", "{3,}")


class _Patterns:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def alternatives(self, depth: int) -> str:
        return "|".join(self._branch(depth) for _ in range(self.random.choice((1, 1, 1, 2, 3))))

    def _branch(self, depth: int) -> str:
        return "".join(self._atom(depth) + self._quantifier() for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 4))))

    def _quantifier(self) -> str:
        if self.random.random() < 0.5:
            return ""
        return self.random.choice(_QUANTIFIERS) + ("?" if self.random.random() < 0.3 else "")

    def _atom(self, depth: int) -> str:
        kind = self.random.random()
        if kind < 0.45 or (kind > 0.62 and depth == 0):
            return self.random.choice("abc")
        if kind < 0.58:
            return self.random.choice((".", "[ab]", "[^a]", "[a-c]", r"\w", r"\d", r"\s"))
        if kind < 0.62:
            return self.random.choice(("^", "$", r"\m", r"\M", r"\y", r"\Y", r"\A", r"\Z"))
        return ("(" if self.random.random() < 0.7 else "(?:") + self.alternatives(depth - 1) + ")"

    def text(self) -> str:
        return "".join(self.random.choice("aaabbcé 1\n") for _ in range(self.random.randint(0, 9)))


def _found(text: str, pattern: str, flags: str) -> Any:
    try:
        matcher = compiled(pattern, flags)
        matches = [
            "|".join("~" if span is None else text[span[0] : span[1]] for span in (found[1:] or found[:1]))
            for found in matcher.search(text).find_all()
        ]
    except TextError as error:
        return str(error)[1:6]
    return matches or None


@pytest.mark.parametrize("seed", [1, 2])
def test_random_regular_expressions_match_as_in_postgres(seed: int) -> None:
    patterns = _Patterns(seed)
    with running_postgres() as postgres:
        for _ in range(PATTERNS):
            pattern, text = patterns.alternatives(3), patterns.text()
            flags = patterns.random.choice(("", "", "i", "n", "p", "w"))
            query = psycopg.sql.SQL(_QUERY).format(text, pattern, flags + "g").as_string()
            expected = postgres.run(query)
            wanted = getattr(expected, "sqlstate", None) or expected.rows[0][0]  # type: ignore[union-attr]
            assert _found(text, pattern, flags) == wanted, (pattern, flags, text)
