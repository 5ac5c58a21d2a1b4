"""Statements in PostgreSQL's grammar: its own parser reads them, with parameters written as `$1`, `$2` and so on."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pgparse

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.statements import PostgresStatement, TextEdit
from tailrace.sql.text_positions import position_at

_MAX_NESTED_BRACKETS = 50
_MAX_PARAMETERS = 32_767
_MAX_LONG_NAMES = 100
_TOO_MANY_PARTS = "improper qualified name (too many dotted names)"
_NAMES_LIKE_KEYWORDS = ("offset", "order", "user", "group", "end", "limit", "desc", "table", "check", "default")
"""Reserved words of PostgreSQL that are often meant as names."""
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION", "SELECT", "VALUES", "DISTINCT")


class ParsedText(NamedTuple):
    """One statement as PostgreSQL's parser has read it."""

    tree: Mapping[str, Any]
    """The node of the statement: its fields under the name of its kind."""
    parameters: tuple[str, ...]
    postgres_text: str
    """The text that the parser was given."""
    edits: Sequence[TextEdit]


def parse_text(text: str, tokens: Sequence[SqlToken], place: tuple[int, int], *edits: TextEdit) -> ParsedText:
    """Parse one statement, whose tokens count from its beginning. It was written at this line and column."""
    if "\0" in text:
        raise SqlSyntaxError("the character 0 is not valid in SQL", *moved(text, text.index("\0"), place))
    names, replaced = _parameters(tokens, text, place)
    _check_nesting(tokens, text, place)
    for _ in range(_MAX_LONG_NAMES):
        written, changed = _rewritten(text, replaced)
        draft = PostgresStatement(
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
            raise SqlSyntaxError("the text is not valid Unicode", *moved(written, error.start, place)) from None
        except RecursionError:
            raise _too_deep(place) from None
        break
    else:
        raise SqlError(f"the query has more than {_MAX_LONG_NAMES} names of more than three parts; use aliases", *place)
    if len(statements) != 1:
        raise unusable(tokens, place)
    return ParsedText(statements[0]["stmt"], names, written, (*edits, *changed))


def unusable(tokens: Sequence[SqlToken], place: tuple[int, int]) -> UnsupportedSqlError:
    """Return the error for a statement that PostgreSQL knows and Tailrace does not."""
    return UnsupportedSqlError(f"{tokens[0].text.upper()} can't be used like this; see docs/reference/sql.md", *place)


def tokens_within(tokens: Sequence[SqlToken]) -> list[SqlToken]:
    """Return the tokens of a statement, counted from its beginning."""
    start = tokens[0].start
    return [token._replace(start=token.start - start, end=token.end - start) for token in tokens] if start else list(tokens)


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
                raise SqlSyntaxError(f"there is no parameter ${token.text}", *moved(text, token.start, place))
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


def _join_long_name(
    tokens: Sequence[SqlToken], replaced: dict[int, tuple[SqlToken, str]], draft: PostgresStatement, index: int
) -> bool:
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


def _original(draft: PostgresStatement, index: int) -> int:
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
                    *moved(text, token.start, place),
                )
        elif token.text in (")", "]") and token.kind == "operator":
            depth -= 1


def moved(text: str, index: int, place: tuple[int, int]) -> tuple[int, int]:
    """Return the line and column of a character of a text that was written at this place."""
    line, column = position_at(text, index)
    return (place[0] + line - 1, column) if line > 1 else (place[0], place[1] + column - 1)


def _syntax_error(message: str, tokens: Sequence[SqlToken], draft: PostgresStatement, index: int) -> SqlSyntaxError:
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


def count_nodes(tree: object) -> int:
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
