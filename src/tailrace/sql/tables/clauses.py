"""What the statements that write have in common: the table they write to, assignments, RETURNING."""

from collections.abc import Sequence

from sqlglot import exp

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.places import place_of
from tailrace.sql.tables.inference import Find
from tailrace.sql.tables.programs import Returned
from tailrace.sql.tables.translate import Translation, name_of


def target_table(target: exp.Expr, find: Find) -> Table:
    name = name_of(target)
    table = find(name) if name is not None else None
    if table is None:
        raise SqlError(f"there is no table {name!r} to write to", *(place_of(target) or ()))
    return table


def columns_named(table: Table, named: Sequence[exp.Expr]) -> Sequence[Column]:
    """Columns by their names, in whatever case; all of them if no name is given."""
    if not named:
        return table.columns
    by_name = {column.name.lower(): column for column in table.columns}
    found = []
    for at in named:
        name = at.name
        column = by_name.get(name.lower())
        if column is None:
            known = ", ".join(column.name for column in table.columns[:20])
            raise SqlError(f"table {table.name!r} has no column {name!r}; it has {known}", *(place_of(at) or ()))
        if column in found:
            raise SqlError(f"column {name!r} is named twice", *(place_of(at) or ()))
        found.append(column)
    return found


def assignments(item: exp.Expr) -> list[exp.Expr]:
    """Assignments that nothing takes for comparisons; `(a, b) = (1, 2)` is two."""
    if isinstance(item, exp.EQ) and isinstance(item.this, exp.Tuple) and isinstance(item.expression, exp.Tuple):
        names, values = item.this.expressions, item.expression.expressions
        if len(names) == len(values):
            return [exp.PropertyEQ(this=name, expression=value) for name, value in zip(names, values, strict=True)]
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise UnsupportedSqlError("SET takes assignments: column = value", *(place_of(item) or ()))
    return [exp.PropertyEQ(this=item.this, expression=item.expression)]


def assignment(item: exp.Expr, table: Table) -> exp.Expr:
    column = columns_named(table, [item.this])[0]
    return exp.EQ(this=identifier(column), expression=stored_in(item.expression, table, column))


def stored_in(value: exp.Expr, table: Table, column: Column) -> exp.Expr:
    names = exp.Literal.string(table.name), exp.Literal.string(column.name)
    return exp.Anonymous(this="tr_store", expressions=[value, *names])


def identifier(column: Column) -> exp.Identifier:
    return exp.to_identifier(column.name, quoted=True)


def prepare_returning(tree: exp.Expr, table: Table, translation: Translation) -> Returned | None:
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
