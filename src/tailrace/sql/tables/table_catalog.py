"""What the tables' connections know in common: definitions, encoders of events, and programs made from statements.

Readers' threads look things up in it while the writer's thread adds and removes tables; only the latter goes through them all.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from sqlglot import exp

from tailrace.model.errors import OverloadedError
from tailrace.model.limits import KIB, Limits
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.statements import Query, Write
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.compile import program_of
from tailrace.sql.tables.programs import CompiledStatement, Program

_PROGRAMS = 512
_LONGEST_TEXT = 4 * KIB
"""Longer texts are not remembered by the parser either, so their trees do not come again."""


class TableCatalog:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tables: dict[str, Table] = {}
        self.events: dict[str, TableEvents] = {}
        """By the name of the table."""
        self.columns: dict[tuple[str, str], Column] = {}
        """By the names of table and column."""
        self.types: dict[str, ColumnType] = {}
        """Types that statements cast to, by name."""
        self._programs: OrderedDict[int, tuple[exp.Expr, Program]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str) -> Table | None:
        return self._tables.get(name.lower())

    def add(self, tables: Iterable[Table]) -> None:
        for table in tables:
            self.events[table.name] = TableEvents(table, self._limits)
            self.columns.update({(table.name, column.name): column for column in table.columns})
            self._tables[table.name.lower()] = table
        self._forget_programs()

    def remove(self, table: Table) -> None:
        self._tables.pop(table.name.lower(), None)
        self.events.pop(table.name, None)
        for column in table.columns:
            self.columns.pop((table.name, column.name), None)
        self._forget_programs()

    def program(self, statement: Write | Query) -> Program:
        """By the tree, which is the same for all who run the same text."""
        if statement.compiled is not None:
            return self._checked(statement.compiled)
        tree = statement.tree
        with self._lock:
            known = self._programs.get(id(tree))
            if known is not None:
                self._programs.move_to_end(id(tree))
                return known[1]
        program = program_of(statement, self.find, self.types)
        if len(statement.text) > _LONGEST_TEXT:
            return program
        with self._lock:
            # The tree is held, so that no other gets its address.
            self._programs[id(tree)] = tree, program
            if len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        return program

    def _checked(self, compiled: CompiledStatement) -> Program:
        for table in compiled.tables:
            if self.find(table.name) != table:
                raise OverloadedError(f"table {table.name!r} was made anew while the statement was read; send it again")
        self.types.update(compiled.types)
        return compiled.program

    def _forget_programs(self) -> None:
        with self._lock:
            self._programs.clear()
