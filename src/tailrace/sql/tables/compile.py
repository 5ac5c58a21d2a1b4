"""Compiles statements to programs that SQLite can run.

An INSERT of plain values becomes rows for one prepared statement; everything else is computed by SQLite.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlglot import exp

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.table import Column, ColumnType, Table
from tailrace.model.text import counted
from tailrace.sql.statements import Write
from tailrace.sql.syntax_trees import position_of, with_column_names
from tailrace.sql.tables.defaults import default_of
from tailrace.sql.tables.inference import FindTable
from tailrace.sql.tables.planned_writes import PlannedWrite, postgres_text
from tailrace.sql.tables.programs import DEFAULT_CELL, InsertCell, InsertRows, Program, ReturnedColumns, SqliteStatement
from tailrace.sql.tables.schema import constant
from tailrace.sql.tables.translate import Translation, name_of
from tailrace.sql.tables.values import StoredValue

_CONSTANTS = (exp.Literal, exp.Boolean, exp.Null, exp.HexString)


def program_of(statement: Write, find: FindTable, types: dict[str, ColumnType]) -> Program:
    """Compile a statement. The types that it casts to are added to `types`."""
    tree = with_column_names(statement.tree)
    # Rows that stand apart from the statement replace a query of its text.
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete) and statement.rows is None and _is_planned(tree):
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        text = postgres_text(statement.text, statement.parameters)
        return PlannedWrite(target_table(target, find), text, statement.parameters, statement.line, statement.column)
    match tree:
        case exp.Insert():
            return insert_program(tree, find, types)
        case exp.Update():
            return _update(tree, find, types)
        case exp.Delete():
            return _delete(tree, find, types)
    raise UnsupportedSqlError(f"{type(tree).__name__} can't write to a table; use INSERT, UPDATE or DELETE")


def _is_planned(tree: exp.Insert | exp.Update | exp.Delete) -> bool:
    """Return whether a write is computed in Python: unless it reads rows by a query, or inserts plain values only."""
    source = tree.args.get("expression")
    has_query = any(node is not source for node in tree.find_all(exp.Query))
    if has_query or tree.args.get("with_") or tree.args.get("from_") or tree.args.get("using"):
        return False
    if not isinstance(tree, exp.Insert):
        return True
    if isinstance(source, exp.Query) and not isinstance(source, exp.Values):
        return False
    return bool(tree.args.get("conflict") or tree.args.get("returning")) or not _has_plain_values(source)


def _has_plain_values(source: exp.Expr | None) -> bool:
    if not isinstance(source, exp.Values):
        return True
    cells = (cell for row in source.expressions for cell in (row.expressions if isinstance(row, exp.Tuple) else [row]))
    return all(
        isinstance(cell, (*_CONSTANTS, exp.Placeholder))
        or (isinstance(cell, exp.Neg) and isinstance(cell.this, exp.Literal))
        or (isinstance(cell, exp.Var) and cell.name.upper() == "DEFAULT")
        for cell in cells
    )


def _update(tree: exp.Update, find: FindTable, types: dict[str, ColumnType]) -> Program:
    table = target_table(tree.this, find)
    tree.set("expressions", [pair for item in tree.expressions for pair in assignments(item)])
    translation = Translation(tree, find, types)
    returning = prepare_returning(tree, table, translation)
    new = translation.rewrite()
    new.set("expressions", [assignment(item, table) for item in new.expressions])
    translated = translation.finish(new)
    return SqliteStatement(translated.sql, translated.parameters, returning)


def _delete(tree: exp.Delete, find: FindTable, types: dict[str, ColumnType]) -> Program:
    if tree.args.get("using") or tree.args.get("tables"):
        raise UnsupportedSqlError("DELETE can name one table only; use others in a subquery of its WHERE")
    table = target_table(tree.this, find)
    translation = Translation(tree, find, types)
    returning = prepare_returning(tree, table, translation)
    translated = translation.finish(translation.rewrite())
    return SqliteStatement(translated.sql, translated.parameters, returning)


def insert_program(tree: exp.Insert, find: FindTable, types: dict[str, ColumnType]) -> Program:
    if tree.args.get("alternative") or tree.args.get("ignore") or tree.args.get("overwrite"):
        raise UnsupportedSqlError(
            "this form of INSERT is not supported; write INSERT INTO ... ON CONFLICT DO NOTHING or DO UPDATE",
            *(position_of(tree) or ()),
        )
    schema = tree.this
    target = schema.this if isinstance(schema, exp.Schema) else schema
    named = schema.expressions if isinstance(schema, exp.Schema) else []
    source = tree.args.get("expression")
    conflict = tree.args.get("conflict")
    table = target_table(target, find)
    columns = columns_named(table, named)
    rows = _plain_rows(source, table, columns, bool(tree.args.get("default")))
    if rows is None:
        return _insert_source(tree, target, table, columns, find, types)
    # Values are not translated: they are bound, one row at a time.
    row = exp.Tuple(expressions=[exp.var(f"?{number}") for number in range(1, len(table.columns) + 1)])
    tree.set("expression", exp.Values(expressions=[row]))
    tree.set("default", False)
    translation = Translation(tree, find, types, parameters_before=len(table.columns))
    tree.set("this", _target_schema(target, table.columns))
    _prepare_conflict(conflict, table)
    returning = prepare_returning(tree, table, translation)
    new = translation.rewrite()
    _store_conflict(new.args.get("conflict"), table)
    translated = translation.finish(new)
    return InsertRows(table, rows, translated.sql, translated.parameters, conflict is None and returning is None, returning)


def _plain_rows(
    source: exp.Expr | None, table: Table, columns: Sequence[Column], is_default: bool
) -> list[list[InsertCell]] | None:
    """Return the rows of VALUES in the order of the table's columns, or `None` if a value is not a constant or a parameter."""
    if is_default:
        tuples: list[Sequence[exp.Expr]] = [()]
        columns = ()
    elif isinstance(source, exp.Values):
        tuples = [item.expressions if isinstance(item, exp.Tuple) else [item] for item in source.expressions]
    else:
        return None
    rows = []
    for number, values in enumerate(tuples, start=1):
        if len(values) != len(columns):
            raise SqlError(
                f"row {number} has {counted(len(values), 'value')}, but the INSERT has {counted(len(columns), 'column')}",
                *_first_position(values),
            )
        cells = {column.name: _cell(value) for column, value in zip(columns, values, strict=True)}
        for column in columns:
            is_generated = column.identity is not None and column.identity.kind == "always"
            if is_generated and cells[column.name] is not DEFAULT_CELL:
                raise SqlError(f"cannot insert a non-DEFAULT value into column {column.name!r}", sqlstate="428C9")
        if any(cell is None for cell in cells.values()):
            return None
        rows.append([cells.get(column.name) or DEFAULT_CELL for column in table.columns])
    return rows


def _cell(value: exp.Expr) -> InsertCell | None:
    if isinstance(value, exp.Placeholder):
        return InsertCell(parameter=value.name)
    if isinstance(value, exp.Var) and value.name.upper() == "DEFAULT":
        return DEFAULT_CELL
    if isinstance(value, _CONSTANTS) or (isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal)):
        return InsertCell(value=constant(value))
    return None


def _insert_source(
    tree: exp.Insert, target: exp.Expr, table: Table, columns: Sequence[Column], find: FindTable, types: dict[str, ColumnType]
) -> Program:
    """Compile INSERT ... SELECT, and VALUES that SQLite has to compute."""
    source = tree.args["expression"]
    if not isinstance(source, (exp.Query, exp.Values)):
        raise UnsupportedSqlError("INSERT needs VALUES or a SELECT", *(position_of(tree) or ()))
    width = len(source.selects) if isinstance(source, exp.Query) and not any(item.is_star for item in source.selects) else None
    if width is not None and width != len(columns):
        raise SqlError(
            f"the query returns {counted(width, 'column')}, but the INSERT has {len(columns)}", *(position_of(source) or ())
        )
    _refuse_default_words(source)
    if any(column.identity is not None and column not in columns for column in table.columns):
        raise UnsupportedSqlError("INSERT ... SELECT into a table that numbers its rows is not supported; use VALUES")
    translation = Translation(tree, find, types)
    names = [exp.to_identifier(f"c{at}", quoted=True) for at in range(len(columns))]
    now = datetime.now(UTC)
    given = {column.name: exp.column(name.copy()) for column, name in zip(columns, names, strict=True)}
    stored = [
        stored_in(given[column.name], table, column) if column.name in given else _literal(default_of(column)(now))
        for column in table.columns
    ]
    _prepare_conflict(tree.args.get("conflict"), table)
    returning = prepare_returning(tree, table, translation)
    new = translation.rewrite()
    alias = exp.TableAlias(this=exp.to_identifier("source", quoted=True), columns=names)
    cte = exp.CTE(this=new.args["expression"], alias=alias)
    # The WHERE keeps SQLite from parsing ON CONFLICT as the condition of a join.
    select = exp.select(*stored).from_(exp.to_identifier("source", quoted=True)).where(exp.true())
    select.set("with_", exp.With(expressions=[cte]))
    new.set("expression", select)
    new.set("this", _target_schema(new.this.this if isinstance(new.this, exp.Schema) else new.this, table.columns))
    _store_conflict(new.args.get("conflict"), table)
    translated = translation.finish(new)
    return SqliteStatement(translated.sql, translated.parameters, returning)


def _target_schema(target: exp.Expr, columns: Sequence[Column]) -> exp.Expr:
    return exp.Schema(this=target, expressions=[identifier(column) for column in columns])


def _prepare_conflict(conflict: exp.Expr | None, table: Table) -> None:
    if conflict is None:
        return
    if conflict.args.get("constraint"):
        raise UnsupportedSqlError(
            "ON CONFLICT can't name a constraint; name the columns of the key", *(position_of(conflict) or ())
        )
    keys = conflict.args.get("conflict_keys") or []
    columns = columns_named(table, [_unordered(key) for key in keys]) if keys else []
    conflict.set("conflict_keys", [identifier(column) for column in columns])
    conflict.set("expressions", [pair for item in conflict.expressions for pair in assignments(item)])


def _store_conflict(conflict: exp.Expr | None, table: Table) -> None:
    if conflict is not None and conflict.expressions:
        conflict.set("expressions", [assignment(item, table) for item in conflict.expressions])


def _unordered(key: exp.Expr) -> exp.Expr:
    return key.this if isinstance(key, exp.Ordered) else key


def _literal(kept: StoredValue) -> exp.Expr:
    if isinstance(kept, bytes):
        return exp.HexString(this=kept.hex())
    return exp.convert(kept)


def _refuse_default_words(source: exp.Expr) -> None:
    for word in source.find_all(exp.Var):
        if word.name.upper() == "DEFAULT":
            raise UnsupportedSqlError(
                "DEFAULT can only be used in rows of constants and parameters", *(position_of(word) or ())
            )


def _first_position(values: Sequence[exp.Expr]) -> tuple[int, int] | tuple[()]:
    return (position_of(values[0]) if values else None) or ()


def target_table(target: exp.Expr, find: FindTable) -> Table:
    name = name_of(target)
    table = find(name) if name is not None else None
    if table is None:
        raise SqlError(f"there is no table {name!r} to write to", *(position_of(target) or ()))
    return table


def columns_named(table: Table, named: Sequence[exp.Expr]) -> Sequence[Column]:
    """Return columns by their names, in any case; all of them if there are no names."""
    if not named:
        return table.columns
    by_name = {column.name.lower(): column for column in table.columns}
    found = []
    for at in named:
        name = at.name
        column = by_name.get(name.lower())
        if column is None:
            known = ", ".join(column.name for column in table.columns[:20])
            raise SqlError(f"table {table.name!r} has no column {name!r}; use {known}", *(position_of(at) or ()))
        if column in found:
            raise SqlError(f"column {name!r} is named twice; name it once", *(position_of(at) or ()))
        found.append(column)
    return found


def assignments(item: exp.Expr) -> list[exp.Expr]:
    """Return assignments as nodes that are not comparisons; `(a, b) = (1, 2)` is two of them."""
    if isinstance(item, exp.EQ) and isinstance(item.this, exp.Tuple) and isinstance(item.expression, exp.Tuple):
        names, values = item.this.expressions, item.expression.expressions
        if len(names) == len(values):
            return [exp.PropertyEQ(this=name, expression=value) for name, value in zip(names, values, strict=True)]
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise UnsupportedSqlError("SET needs assignments of the form column = value", *(position_of(item) or ()))
    return [exp.PropertyEQ(this=item.this, expression=item.expression)]


def assignment(item: exp.Expr, table: Table) -> exp.Expr:
    column = columns_named(table, [item.this])[0]
    return exp.EQ(this=identifier(column), expression=stored_in(item.expression, table, column))


def stored_in(value: exp.Expr, table: Table, column: Column) -> exp.Expr:
    names = exp.Literal.string(table.name), exp.Literal.string(column.name)
    return exp.Anonymous(this="tr_store", expressions=[value, *names])


def identifier(column: Column) -> exp.Identifier:
    return exp.to_identifier(column.name, quoted=True)


def prepare_returning(tree: exp.Expr, table: Table, translation: Translation) -> ReturnedColumns | None:
    """Return the types of the columns of RETURNING, and remove the names of tables, which SQLite does not accept there."""
    clause = tree.args.get("returning")
    if clause is None:
        return None
    types: list[ColumnType | None] = []
    for item in clause.expressions:
        types += [column.type for column in table.columns] if item.is_star else [translation.infer(item)]
    for column in clause.find_all(exp.Column):
        column.set("table", None)
    return ReturnedColumns(types)
