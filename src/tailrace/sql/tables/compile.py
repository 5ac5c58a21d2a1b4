"""From statements to programs that SQLite can run."""

from sqlglot import exp

from tailrace.model.errors import UnsupportedSqlError
from tailrace.model.table import ColumnType
from tailrace.sql.column_names import with_column_names
from tailrace.sql.statements import Query, Write
from tailrace.sql.tables.clauses import assignment, assignments, prepare_returning, target_table
from tailrace.sql.tables.inference import Find
from tailrace.sql.tables.inserts import insert_program
from tailrace.sql.tables.programs import Program, Returned, Run
from tailrace.sql.tables.translate import Translation


def program_of(statement: Write | Query, find: Find, types: dict[str, ColumnType]) -> Program:
    """Make a statement ready to run. `types` learns the types that it casts to."""
    tree = with_column_names(statement.tree)
    if isinstance(statement, Query):
        translation = Translation(tree, find, types)
        translated = translation.finish(translation.rewrite())
        return Run(translated.sql, translated.parameters, Returned(translated.types))
    match tree:
        case exp.Insert():
            return insert_program(tree, find, types)
        case exp.Update():
            return _update(tree, find, types)
        case exp.Delete():
            return _delete(tree, find, types)
    raise UnsupportedSqlError(f"{type(tree).__name__} is not a statement that writes to a table")


def _update(tree: exp.Update, find: Find, types: dict[str, ColumnType]) -> Program:
    table = target_table(tree.this, find)
    tree.set("expressions", [pair for item in tree.expressions for pair in assignments(item)])
    translation = Translation(tree, find, types)
    returning = prepare_returning(tree, table, translation)
    new = translation.rewrite()
    new.set("expressions", [assignment(item, table) for item in new.expressions])
    translated = translation.finish(new)
    return Run(translated.sql, translated.parameters, returning)


def _delete(tree: exp.Delete, find: Find, types: dict[str, ColumnType]) -> Program:
    if tree.args.get("using") or tree.args.get("tables"):
        raise UnsupportedSqlError("DELETE takes rows of one table; name others in a subquery of its WHERE")
    table = target_table(tree.this, find)
    translation = Translation(tree, find, types)
    returning = prepare_returning(tree, table, translation)
    translated = translation.finish(translation.rewrite())
    return Run(translated.sql, translated.parameters, returning)
