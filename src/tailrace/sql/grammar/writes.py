"""INSERT, UPDATE and DELETE, as PostgreSQL's parser reads them. Which functions and columns there are is up to the analysis."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tailrace.model.limits import Limits
from tailrace.model.route import Operation
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.grammar.postgres import count_nodes, parse_text, tokens_within, unusable
from tailrace.sql.grammar.selects import check_nodes
from tailrace.sql.statements import Query, Write
from tailrace.sql.text_positions import position_at

_KINDS: dict[str, Operation] = {"InsertStmt": "insert", "UpdateStmt": "update", "DeleteStmt": "delete"}
_READING = ("withClause", "fromClause", "usingClause")
_LONG_NUMBER = 40
_CLAUSES_OF_VALUES = ("withClause", "sortClause", "limitCount", "limitOffset")


def parse_write(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Write:
    """Parse an INSERT, UPDATE or DELETE. `source` is the whole text of the request, in which the tokens are."""
    text = source[tokens[0].start : tokens[-1].end]
    place = position_at(source, tokens[0].start)
    parsed = parse_text(text, tokens_within(tokens), place)
    ((kind, fields),) = parsed.tree.items()
    if kind not in _KINDS:
        raise unusable(tokens, place)
    target = fields["relation"]
    rows = plain_rows(fields)
    if rows is None:
        check_nodes(count_nodes(parsed.tree), place, limits)
    else:
        # Plain values are not analyzed one by one, so there may be any number of them.
        check_nodes(count_nodes({name: value for name, value in fields.items() if name != "selectStmt"}), place, limits)
    return Write(
        text=text,
        line=place.line,
        column=place.column,
        kind=_KINDS[kind],
        target=".".join(target[part] for part in ("catalogname", "schemaname", "relname") if part in target),
        target_location=target.get("location", 0),
        tree=parsed.tree,
        parameters=parsed.parameters,
        postgres_text=parsed.postgres_text,
        edits=parsed.edits,
        has_queries=_has_queries(fields, is_plain=rows is not None),
    )


def plain_rows(fields: Mapping[str, Any]) -> list[list[Mapping[str, Any]]] | None:
    """Return the cells of an INSERT of plain values: constants, parameters and DEFAULT; `None` for any other statement."""
    select = fields.get("selectStmt", {}).get("SelectStmt", {})
    if "valuesLists" not in select or any(select.get(clause) for clause in _CLAUSES_OF_VALUES):
        return None
    rows = [row["List"]["items"] for row in select["valuesLists"]]
    return rows if all(is_plain(cell) for row in rows for cell in row) else None


def is_plain(cell: Mapping[str, Any]) -> bool:
    """Return whether a value is a constant, a parameter or DEFAULT."""
    if "A_Const" in cell:
        return "bsval" not in cell["A_Const"]
    return "ParamRef" in cell or "SetToDefault" in cell


def constant_of(cell: Mapping[str, Any]) -> object:
    """Return the value of a plain constant. Numbers stay exact."""
    constant = cell["A_Const"]
    if "sval" in constant:
        return constant["sval"].get("sval", "")
    if "boolval" in constant:
        return bool(constant["boolval"].get("boolval", False))
    if constant.get("isnull"):
        return None
    return _number(constant)


def query_of_insert(write: Write) -> Query:
    """Return what an INSERT inserts as a query of its own, with the WITH that is in front of the INSERT."""
    fields = write.tree["InsertStmt"]
    select = fields["selectStmt"]["SelectStmt"]
    if "withClause" in fields:
        inner = select.get("withClause")
        merged = {**fields["withClause"], "ctes": [*fields["withClause"]["ctes"], *(inner["ctes"] if inner else ())]}
        select = {**select, "withClause": merged}
    return Query(
        text=write.text,
        line=write.line,
        column=write.column,
        parameters=write.parameters,
        tree={"SelectStmt": select},
        postgres_text=write.postgres_text,
        edits=write.edits,
    )


def _has_queries(fields: Mapping[str, Any], *, is_plain: bool) -> bool:
    if any(fields.get(clause) for clause in _READING):
        return True
    select = fields.get("selectStmt", {}).get("SelectStmt")
    if select is not None and ("valuesLists" not in select or any(select.get(clause) for clause in _CLAUSES_OF_VALUES)):
        return True
    parts = [value for name, value in fields.items() if not (is_plain and name == "selectStmt")]
    return "SubLink" in kinds_in(parts)


def kinds_in(tree: object) -> Iterator[str]:
    """Yield the kinds of the nodes of a parse tree, and the names of their fields."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield from node
            waiting.extend(value for value in node.values() if isinstance(value, dict | list))
        elif isinstance(node, list):
            waiting.extend(node)


def _number(constant: Mapping[str, Any]) -> int | Decimal:
    if "ival" in constant:
        return int(constant["ival"].get("ival", 0))
    text = constant["fval"]["fval"].replace("_", "")
    digits = text.lstrip("-")
    if digits[:2].lower() in ("0x", "0o", "0b"):
        return int(text, 0)
    return int(text) if digits.isdigit() and len(digits) < _LONG_NUMBER else Decimal(text)
