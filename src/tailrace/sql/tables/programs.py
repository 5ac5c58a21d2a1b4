"""Statements as SQLite can run them, made once for each text and run many times.

An INSERT of plain values becomes rows for one prepared statement, checked and brought to their form column by column here.
Everything else is one statement of SQLite's, in which each value that is written passes through `tr_store`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.places import place_of
from tailrace.sql.statements import Query, Write
from tailrace.sql.tables.inference import Find
from tailrace.sql.tables.schema import constant, default_of
from tailrace.sql.tables.translate import Translated, Translation, name_of
from tailrace.sql.tables.values import Stored, stored_column

Types = dict[str, ColumnType]
_CONSTANTS = (exp.Literal, exp.Boolean, exp.Null, exp.HexString)


class Cell(NamedTuple):
    """Where a value of an INSERT comes from."""

    parameter: str | None = None
    value: object = None
    is_stored: bool = False
    """Whether the value is in its form already."""


class InsertRows(NamedTuple):
    """Rows for one prepared statement."""

    table: Table
    rows: Sequence[Sequence[Cell]]
    sql: str
    parameters: Sequence[str]
    """Of the clauses after the rows; they are bound after a row's cells."""
    is_plain: bool
    """Whether each row goes in as it is or the statement fails, so that the change is known without looking."""
    returning: "Returned | None"


class Run(NamedTuple):
    """One statement of SQLite's."""

    sql: str
    parameters: Sequence[str]
    returning: "Returned | None"


class Returned(NamedTuple):
    """What comes back: types by column, as far as they are known."""

    types: Sequence[ColumnType | None] | None


Program = InsertRows | Run


def program_of(statement: Write | Query, find: Find, types: Types) -> Program:
    """Make a statement ready to run. `types` learns the types that it casts to."""
    tree = statement.tree.copy()
    if isinstance(statement, Query):
        translation = Translation(tree, find, types)
        translated = translation.finish(translation.rewrite())
        return Run(translated.sql, translated.parameters, Returned(translated.types))
    match tree:
        case exp.Insert():
            return _insert(tree, find, types)
        case exp.Update():
            return _update(tree, find, types)
        case exp.Delete():
            if tree.args.get("using") or tree.args.get("tables"):
                raise UnsupportedSqlError("DELETE takes rows of one table; name others in a subquery of its WHERE")
            return _changed(Translation(tree, find, types), ())
    raise UnsupportedSqlError(f"{type(tree).__name__} is not a statement that writes to a table")


def rows_to_store(
    program: InsertRows, given: Sequence[Mapping[str, object]] | Sequence[Sequence[object]]
) -> list[tuple[Stored, ...]]:
    """The rows in the form in which they are kept, once for each set of parameters."""
    columns = []
    by_position = not given or not isinstance(given[0], Mapping)
    for at, column in enumerate(program.table.columns):
        values: list[object] = []
        is_stored = True
        for row in program.rows:
            name, value, cell_is_stored = row[at]
            is_stored = is_stored and cell_is_stored
            if name is None:
                values += [value] * len(given)
            elif by_position:
                place = int(name) - 1
                values += [parameters[place] for parameters in given]  # type: ignore[index]
            else:
                values += [parameters[name] for parameters in given]  # type: ignore[call-overload]
        columns.append(values if is_stored else stored_column(values, column))
    return list(zip(*columns, strict=True))


def _insert(tree: exp.Insert, find: Find, types: Types) -> Program:
    if tree.args.get("alternative") or tree.args.get("ignore") or tree.args.get("overwrite"):
        raise UnsupportedSqlError("write INSERT INTO ... ON CONFLICT DO NOTHING or DO UPDATE", *(place_of(tree) or ()))
    schema = tree.this
    target = schema.this if isinstance(schema, exp.Schema) else schema
    names = [item.name for item in schema.expressions] if isinstance(schema, exp.Schema) else []
    source = tree.args.get("expression")
    conflict = tree.args.get("conflict")
    table = _target(target, find)
    columns = _columns(table, names, target)
    rows = _plain_rows(source, table, columns, bool(tree.args.get("default")))
    if rows is None:
        return _insert_source(tree, target, table, columns, find, types)
    # Values stay out of the translation: they are bound, one row at a time.
    places = exp.Tuple(expressions=[exp.var(f"?{number}") for number in range(1, len(table.columns) + 1)])
    tree.set("expression", exp.Values(expressions=[places]))
    tree.set("default", False)
    translation = Translation(tree, find, types, parameters_before=len(table.columns))
    tree.set("this", _target_schema(target, table.columns))
    _prepare_conflict(conflict, table)
    returning = _prepare_returning(tree, table, translation)
    new = translation.rewrite()
    _store_conflict(new.args.get("conflict"), table)
    translated = translation.finish(new)
    return InsertRows(table, rows, translated.sql, translated.parameters, conflict is None and returning is None, returning)


def _plain_rows(source: exp.Expr | None, table: Table, columns: Sequence[Column], is_default: bool) -> list[list[Cell]] | None:
    """The rows of VALUES by the table's columns, if each value is a constant or a parameter."""
    if is_default:
        tuples: list[Sequence[exp.Expr]] = [()]
        columns = ()
    elif isinstance(source, exp.Values):
        tuples = [item.expressions if isinstance(item, exp.Tuple) else [item] for item in source.expressions]
    else:
        return None
    defaults: dict[str, Cell] = {}
    rows = []
    for number, values in enumerate(tuples, start=1):
        if len(values) != len(columns):
            raise SqlError(f"row {number} has {len(values)} values for {len(columns)} columns", *_first_place(values))
        cells = {column.name: _cell(value, column, defaults) for column, value in zip(columns, values, strict=True)}
        if any(cell is None for cell in cells.values()):
            return None
        rows.append([cells.get(column.name) or _default(column, defaults) for column in table.columns])
    return rows


def _cell(value: exp.Expr, column: Column, defaults: dict[str, Cell]) -> Cell | None:
    if isinstance(value, exp.Placeholder):
        return Cell(parameter=value.name)
    if isinstance(value, exp.Var) and value.name.upper() == "DEFAULT":
        return _default(column, defaults)
    if isinstance(value, _CONSTANTS) or (isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal)):
        return Cell(value=constant(value))
    return None


def _default(column: Column, defaults: dict[str, Cell]) -> Cell:
    if column.name not in defaults:
        defaults[column.name] = Cell(value=default_of(column), is_stored=True)
    return defaults[column.name]


def _insert_source(
    tree: exp.Insert, target: exp.Expr, table: Table, columns: Sequence[Column], find: Find, types: Types
) -> Program:
    """INSERT ... SELECT, and VALUES that have to be computed."""
    source = tree.args["expression"]
    if not isinstance(source, (exp.Query, exp.Values)):
        raise UnsupportedSqlError("INSERT takes VALUES or a SELECT", *(place_of(tree) or ()))
    width = len(source.selects) if isinstance(source, exp.Query) and not any(item.is_star for item in source.selects) else None
    if width is not None and width != len(columns):
        raise SqlError(f"the query gives {width} columns for {len(columns)}", *(place_of(source) or ()))
    _refuse_default_words(source)
    translation = Translation(tree, find, types)
    names = [exp.to_identifier(f"c{at}", quoted=True) for at in range(len(columns))]
    given = {column.name: exp.column(name.copy()) for column, name in zip(columns, names, strict=True)}
    stored = [
        _stored(given[column.name], table, column) if column.name in given else _literal(default_of(column))
        for column in table.columns
    ]
    _prepare_conflict(tree.args.get("conflict"), table)
    returning = _prepare_returning(tree, table, translation)
    new = translation.rewrite()
    alias = exp.TableAlias(this=exp.to_identifier("source", quoted=True), columns=names)
    cte = exp.CTE(this=new.args["expression"], alias=alias)
    # A WHERE, because SQLite would take ON CONFLICT for the condition of a join.
    select = exp.select(*stored).from_(exp.to_identifier("source", quoted=True)).where(exp.true())
    select.set("with_", exp.With(expressions=[cte]))
    new.set("expression", select)
    new.set("this", _target_schema(new.this.this if isinstance(new.this, exp.Schema) else new.this, table.columns))
    _store_conflict(new.args.get("conflict"), table)
    translated = translation.finish(new)
    return Run(translated.sql, translated.parameters, returning)


def _update(tree: exp.Update, find: Find, types: Types) -> Program:
    table = _target(tree.this, find)
    assignments = [pair for item in tree.expressions for pair in _assignments(item)]
    tree.set("expressions", assignments)
    return _changed(Translation(tree, find, types), assignments, table)


def _changed(translation: Translation, assignments: Sequence[exp.Expr], table: Table | None = None) -> Program:
    tree = translation._tree
    if table is None:
        table = next(iter(translation.names.values()))
    returning = _prepare_returning(tree, table, translation)
    new = translation.rewrite()
    if table is not None and assignments:
        new.set("expressions", [_assignment(item, table) for item in new.expressions])
    translated: Translated = translation.finish(new)
    return Run(translated.sql, translated.parameters, returning)


def _assignments(item: exp.Expr) -> list[exp.Expr]:
    """Assignments that nothing takes for comparisons; `(a, b) = (1, 2)` is two."""
    if isinstance(item, exp.EQ) and isinstance(item.this, exp.Tuple) and isinstance(item.expression, exp.Tuple):
        names, values = item.this.expressions, item.expression.expressions
        if len(names) == len(values):
            return [exp.PropertyEQ(this=name, expression=value) for name, value in zip(names, values, strict=True)]
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise UnsupportedSqlError("SET takes assignments: column = value", *(place_of(item) or ()))
    return [exp.PropertyEQ(this=item.this, expression=item.expression)]


def _assignment(item: exp.Expr, table: Table) -> exp.Expr:
    column = _columns(table, [item.this.name], item.this)[0]
    return exp.EQ(this=_name(column), expression=_stored(item.expression, table, column))


def _prepare_conflict(conflict: exp.Expr | None, table: Table) -> None:
    if conflict is None:
        return
    if conflict.args.get("constraint"):
        raise UnsupportedSqlError("name the columns of the key in ON CONFLICT, not a constraint", *(place_of(conflict) or ()))
    keys = conflict.args.get("conflict_keys") or []
    columns = _columns(table, [_unordered(key).name for key in keys], conflict) if keys else []
    conflict.set("conflict_keys", [_name(column) for column in columns])
    conflict.set("expressions", [pair for item in conflict.expressions for pair in _assignments(item)])


def _store_conflict(conflict: exp.Expr | None, table: Table) -> None:
    if conflict is not None and conflict.expressions:
        conflict.set("expressions", [_assignment(item, table) for item in conflict.expressions])


def _unordered(key: exp.Expr) -> exp.Expr:
    return key.this if isinstance(key, exp.Ordered) else key


def _prepare_returning(tree: exp.Expr, table: Table, translation: Translation) -> Returned | None:
    """SQLite gives the row that was written, without the names of tables."""
    clause = tree.args.get("returning")
    if clause is None:
        return None
    types: list[ColumnType | None] = []
    for item in clause.expressions:
        types += [column.type for column in table.columns] if item.is_star else [translation.infer(item)]
    for column in clause.find_all(exp.Column):
        column.set("table", None)
    return Returned(types)


def _target(target: exp.Expr, find: Find) -> Table:
    name = name_of(target)
    table = find(name) if name is not None else None
    if table is None:
        raise SqlError(f"there is no table {name!r} to write to", *(place_of(target) or ()))
    return table


def _target_schema(target: exp.Expr, columns: Sequence[Column]) -> exp.Expr:
    return exp.Schema(this=target, expressions=[_name(column) for column in columns])


def _columns(table: Table, names: Sequence[str], at: exp.Expr) -> Sequence[Column]:
    """Columns by their names, in whatever case; all of them if no name is given."""
    if not names:
        return table.columns
    by_name = {column.name.lower(): column for column in table.columns}
    found = []
    for name in names:
        column = by_name.get(name.lower())
        if column is None:
            known = ", ".join(column.name for column in table.columns[:20])
            raise SqlError(f"table {table.name!r} has no column {name!r}; it has {known}", *(place_of(at) or ()))
        if column in found:
            raise SqlError(f"column {name!r} is named twice", *(place_of(at) or ()))
        found.append(column)
    return found


def _stored(value: exp.Expr, table: Table, column: Column) -> exp.Expr:
    names = exp.Literal.string(table.name), exp.Literal.string(column.name)
    return exp.Anonymous(this="tr_store", expressions=[value, *names])


def _name(column: Column) -> exp.Identifier:
    return exp.to_identifier(column.name, quoted=True)


def _literal(kept: Stored) -> exp.Expr:
    if isinstance(kept, bytes):
        return exp.HexString(this=kept.hex())
    return exp.convert(kept)


def _refuse_default_words(source: exp.Expr) -> None:
    for word in source.find_all(exp.Var):
        if word.name.upper() == "DEFAULT":
            raise UnsupportedSqlError("DEFAULT stands only beside constants and parameters", *(place_of(word) or ()))


def _first_place(values: Sequence[exp.Expr]) -> tuple[int, int] | tuple[()]:
    return (place_of(values[0]) if values else None) or ()
