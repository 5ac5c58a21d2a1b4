"""REDRIVE.

REDRIVE DEAD LETTERS OF topic [WHERE condition] [LIMIT n]
"""

from sqlglot import exp

from tailrace.model.errors import UnsupportedSqlError
from tailrace.sql.dialect import parse_expression
from tailrace.sql.places import place_of
from tailrace.sql.statements import Redrive, Statement
from tailrace.sql.words import Words


def redrive(words: Words, text: str, source: str) -> Statement:
    """`source` is the whole text of the request, in which the condition has its places."""
    words.expect("REDRIVE DEAD LETTERS OF")
    topic = words.name("the name of a topic")
    where = parse_expression(words.until("LIMIT"), source) if words.take("WHERE") else None
    if where is not None:
        _check(where)
    limit = words.integer("the number of dead letters") if words.take("LIMIT") else None
    words.expect_end("LIMIT" if where is not None else "WHERE, LIMIT")
    return Redrive(text=text, topic=topic, where=where, limit=limit)


def _check(where: exp.Expression) -> None:
    for node in where.walk():
        place = place_of(node) or ()
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise UnsupportedSqlError("the condition of REDRIVE can't have parameters; write the values", *place)
        if isinstance(node, exp.Query):
            raise UnsupportedSqlError("the condition of REDRIVE can't have a query in it", *place)
