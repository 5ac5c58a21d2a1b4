"""Queries: parsed by PostgreSQL's own parser, with the parameters of Tailrace written as `$1`, `$2` and so on."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pgparse

from tailrace.model.errors import LimitExceededError, SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.grammar.lexer import SqlToken, read_tokens
from tailrace.sql.statements import Query, TextEdit
from tailrace.sql.syntax_trees import position_at

_MAX_NESTED_BRACKETS = 50
_MAX_PARAMETERS = 32_767
_MAX_LONG_NAMES = 100
_TOO_MANY_PARTS = "improper qualified name (too many dotted names)"
_NAMES_LIKE_KEYWORDS = ("offset", "order", "user", "group", "end", "limit", "desc", "table", "check", "default")
"""Reserved words of PostgreSQL that are often meant as names."""
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION", "SELECT", "VALUES", "DISTINCT")
_VERBS = ("select", "values", "insert", "update", "delete", "merge", "table")


def verb_of(tokens: Sequence[SqlToken]) -> str:
    """Return the keyword that says what a statement does, in lower case; for one that begins with WITH, the one behind that."""
    first = tokens[0]
    if first.text == "(":
        return "select"
    if not first.is_word("with"):
        return first.text.lower()
    depth = 0
    for before, token in pairwise(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if not depth and before.text == ")" and (token.is_word(*_VERBS) or token.text == "("):
            return "select" if token.text == "(" else token.text.lower()
    return "select"


def parse_query(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Query:
    """Parse a query. `source` is the whole text of the request, in which the tokens are."""
    text = source[tokens[0].start : tokens[-1].end]
    return _query(text, _within(tokens), limits, position_at(source, tokens[0].start))


def parse_condition(head: str, condition: str, tail: str, limits: Limits, line: int, column: int) -> Query:
    """Parse a query that is made around a condition, which was written at this line and column."""
    text = head + condition + tail
    query = _query(text, read_tokens(text), limits, (1, 1), TextEdit(0, len(head), 0, 0))
    return Query(
        text=condition,
        line=line,
        column=column,
        tree=query.tree,
        postgres_text=query.postgres_text,
        edits=query.edits,
    )


def check_condition(condition: str, place: tuple[int, int]) -> None:
    """Raise for what the condition of a REDRIVE can't have: parameters, queries, and brackets that do not match."""
    depth = 0
    for token in read_tokens(condition):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth < 0 or token.kind == "end":
            raise SqlSyntaxError(f'syntax error at or near "{token.text}"', *_moved(condition, token.start, place))
        if token.kind == "parameter":
            raise UnsupportedSqlError(
                "the condition of REDRIVE can't have parameters; write the values in it", *_moved(condition, token.start, place)
            )
        if token.is_word("select", "values", "table"):
            raise UnsupportedSqlError(
                "the condition of REDRIVE can't contain a query; compare with constants", *_moved(condition, token.start, place)
            )


def insert_query(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Query:
    """Parse an INSERT, and return what it inserts."""
    text = source[tokens[0].start : tokens[-1].end]
    return _query(text, _within(tokens), limits, position_at(source, tokens[0].start), of_insert=True)


def parse_definition(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Query:
    """Parse a statement that defines something, such as CREATE TABLE. The tree is that of the statement."""
    for token in tokens:
        if token.kind == "parameter":
            raise UnsupportedSqlError(
                "a definition can't have parameters; write the value instead", *position_at(source, token.start)
            )
    text = source[tokens[0].start : tokens[-1].end]
    return _query(text, _within(tokens), limits, position_at(source, tokens[0].start), is_query=False)


def _within(tokens: Sequence[SqlToken]) -> list[SqlToken]:
    start = tokens[0].start
    return [token._replace(start=token.start - start, end=token.end - start) for token in tokens] if start else list(tokens)


def _query(
    text: str,
    tokens: Sequence[SqlToken],
    limits: Limits,
    place: tuple[int, int],
    *edits: TextEdit,
    of_insert: bool = False,
    is_query: bool = True,
) -> Query:
    if "\0" in text:
        raise SqlSyntaxError("the character 0 is not valid in SQL", *_moved(text, text.index("\0"), place))
    names, replaced = _parameters(tokens, text, place)
    _check_nesting(tokens, text, place)
    for _ in range(_MAX_LONG_NAMES):
        written, changed = _rewritten(text, replaced)
        draft = Query(
            text=text, line=place[0], column=place[1], tree={}, postgres_text=written, edits=changed, parameters=names
        )
        try:
            statements = pgparse.parse(written)
        except pgparse.PGQueryError as error:
            index = (error.position or 1) - 1
            if error.message.startswith(_TOO_MANY_PARTS) and _join_long_name(tokens, replaced, draft, index):
                continue
            if error.message.startswith("memory exhausted"):
                raise _too_deep(place) from None
            raise _syntax_error(error.message, tokens, draft, index) from None
        except UnicodeEncodeError as error:
            raise SqlSyntaxError("the text is not valid Unicode", *_moved(written, error.start, place)) from None
        except RecursionError:
            raise _too_deep(place) from None
        break
    else:
        raise SqlError(f"the query has more than {_MAX_LONG_NAMES} names of more than three parts; use aliases", *place)
    tree = statements[0]["stmt"]
    if of_insert:
        tree = tree.get("InsertStmt", {}).get("selectStmt", {})
        with_clause = statements[0]["stmt"].get("InsertStmt", {}).get("withClause")
        if with_clause is not None and "SelectStmt" in tree:
            tree = {"SelectStmt": {**tree["SelectStmt"], "withClause": with_clause}}
    if len(statements) != 1 or (is_query and "SelectStmt" not in tree):
        raise UnsupportedSqlError(f"{tokens[0].text.upper()} can't be used like this; see docs/reference/sql.md", *place)
    nodes = _count(tree)
    if nodes > limits.query_nodes:
        raise LimitExceededError(
            f"the statement at line {place[0]}, column {place[1]} has {nodes} names, constants and operators, more than"
            f" query_nodes allows ({limits.query_nodes}); simplify it, or send values as parameters"
        )
    return Query(
        text=text,
        line=place[0],
        column=place[1],
        parameters=names,
        tree=tree,
        postgres_text=written,
        edits=(*edits, *changed),
    )


def _too_deep(place: tuple[int, int]) -> SqlError:
    return SqlError("the statement is nested too deeply; split it into smaller statements", *place, sqlstate="54001")


def _parameters(
    tokens: Sequence[SqlToken], text: str, place: tuple[int, int]
) -> tuple[tuple[str, ...], dict[int, tuple[SqlToken, str]]]:
    """Return the names of the parameters, and by their start the tokens that are to be replaced, with their new texts."""
    names: dict[str, int] = {}
    replaced: dict[int, tuple[SqlToken, str]] = {}
    most = positional = 0
    for token in tokens:
        if token.kind != "parameter":
            continue
        if text[token.start] == "$":
            most = max(most, int(token.text[:9]))
            if not 1 <= most <= _MAX_PARAMETERS:
                raise SqlSyntaxError(f"there is no parameter ${token.text}", *_moved(text, token.start, place))
            continue
        if token.text:
            number = names.setdefault(token.text, len(names) + 1)
        else:
            positional += 1
            number = names.setdefault(str(positional), len(names) + 1)
        replaced[token.start] = (token, f"${number}")
    if most and names:
        raise SqlError("the text has parameters of both forms, $1 and ? or :name; use one of them", *place)
    return (tuple(map(str, range(1, most + 1))) if most else tuple(names)), replaced


def _rewritten(text: str, replaced: Mapping[int, tuple[SqlToken, str]]) -> tuple[str, tuple[TextEdit, ...]]:
    pieces: list[str] = []
    edits: list[TextEdit] = []
    done = size = 0
    for start in sorted(replaced):
        token, new = replaced[start]
        size += token.start - done + len(new)
        pieces += (text[done : token.start], new)
        edits.append(TextEdit(size - len(new), size, token.start, token.end))
        done = token.end
    return "".join((*pieces, text[done:])), tuple(edits)


def _join_long_name(tokens: Sequence[SqlToken], replaced: dict[int, tuple[SqlToken, str]], draft: Query, index: int) -> bool:
    """Replace a name of more than three parts by one part in quotes, because PostgreSQL's names have at most three."""
    start = _original(draft, index)
    at = next((at for at, token in enumerate(tokens) if token.start == start), None)
    if at is None or start in replaced:
        return False
    parts = [tokens[at]]
    end = at
    while end + 2 < len(tokens) and tokens[end + 1].text == "." and tokens[end + 2].kind in ("word", "quoted"):
        end += 2
        parts.append(tokens[end])
    name = ".".join(part.text.lower() if part.kind == "word" else part.text[1:-1].replace('""', '"') for part in parts)
    whole = SqlToken("quoted", name, start, tokens[end].end)
    replaced[start] = (whole, '"' + name.replace('"', '""') + '"')
    return True


def _original(draft: Query, index: int) -> int:
    shift = 0
    for edit in draft.edits:
        if index >= edit.end:
            shift = edit.original_end - edit.end
        elif index >= edit.start:
            return edit.original_start
    return index + shift


def _check_nesting(tokens: Sequence[SqlToken], text: str, place: tuple[int, int]) -> None:
    """Limit how many brackets are open at once, because parsing and analysis recurse."""
    depth = 0
    for token in tokens:
        if token.text in ("(", "[") and token.kind == "operator":
            depth += 1
            if depth > _MAX_NESTED_BRACKETS:
                raise SqlError(
                    f"brackets are nested more than {_MAX_NESTED_BRACKETS} levels deep; simplify the statement",
                    *_moved(text, token.start, place),
                )
        elif token.text in (")", "]") and token.kind == "operator":
            depth -= 1


def _moved(text: str, index: int, place: tuple[int, int]) -> tuple[int, int]:
    line, column = position_at(text, index)
    return (place[0] + line - 1, column) if line > 1 else (place[0], place[1] + column - 1)


def _syntax_error(message: str, tokens: Sequence[SqlToken], draft: Query, index: int) -> SqlSyntaxError:
    """Return an error of PostgreSQL's parser with its place, and with a hint where a keyword may be meant as a name."""
    start = _original(draft, index)
    at = next((at for at, token in enumerate(tokens) if token.start >= start), len(tokens))
    near = [token for token in tokens[max(0, at - 1) : at + 1] if token.is_word(*_NAMES_LIKE_KEYWORDS)]
    hint = ""
    if near:
        word = near[-1].text
        hint = f'; {word} is a keyword: if you mean a name, write it in quotes ("{word.lower()}")'
    elif at < len(tokens) and tokens[at].kind == "word" and tokens[at].text.upper() not in _CLAUSES:
        hint = did_you_mean(tokens[at].text, _CLAUSES)
    return SqlSyntaxError(f"{message}{hint}", *draft.position_at(min(index, len(draft.postgres_text))))


def _count(tree: object) -> int:
    """Return the number of nodes of a parse tree."""
    count = 0
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            count += 1
            waiting.extend(value for value in node.values() if isinstance(value, dict | list))
        else:
            waiting.extend(item for item in node if isinstance(item, dict | list))
    # Every node is a dictionary of its fields within one that has its kind.
    return count // 2
