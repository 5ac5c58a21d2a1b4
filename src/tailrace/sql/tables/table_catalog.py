"""What all connections to the tables share: definitions, encoders of change events, defaults, and programs.

The readers' threads look up entries while the writer's thread adds and removes tables; only the latter iterates over them.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.model.limits import KIB, Limits
from tailrace.model.table import Table
from tailrace.sql.statements import Write
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.constraints import RowChecks
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.identities import IdentityNumbers
from tailrace.sql.tables.planned_writes import PlanCache, PlannedWrite, Program, program_of

_CACHED_PROGRAMS = 512
_CACHED_CHARACTERS = 4 * KIB
"""Longer texts are not in the statement cache, so the same tree is not used again."""


class TableCatalog:
    def __init__(self, limits: Limits, numbers: IdentityNumbers) -> None:
        self._limits = limits
        self.numbers = numbers
        """The next numbers of identity columns."""
        self.checks: dict[str, RowChecks] = {}
        """The checks of rows by the name of the table."""
        self._tables: dict[str, Table] = {}
        self.events: dict[str, TableEvents] = {}
        """Encoders of events by the name of the table."""
        self.defaults: dict[str, TableDefaults] = {}
        """Defaults of columns by the name of the table."""
        self._programs: OrderedDict[int, tuple[Mapping[str, Any], Program]] = OrderedDict()
        self._plans: OrderedDict[int, tuple[PlannedWrite, PlanCache]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str) -> Table | None:
        return self._tables.get(name.lower())

    def add(self, tables: Iterable[Table]) -> None:
        for table in tables:
            self.events[table.name] = TableEvents(table, self._limits)
            self.defaults[table.name] = TableDefaults(table, self.numbers)
            self.checks[table.name] = RowChecks(table)
            self._tables[table.name.lower()] = table
        self._clear_programs()

    def remove(self, table: Table) -> None:
        self._tables.pop(table.name.lower(), None)
        self.events.pop(table.name, None)
        self.defaults.pop(table.name, None)
        self.checks.pop(table.name, None)
        self.numbers.forget(table)
        self._clear_programs()

    def replace(self, table: Table, altered: Table) -> None:
        """Replace a table by what ALTER TABLE made of it."""
        self.add([altered])

    def program(self, statement: Write) -> Program:
        """Return the program of a statement, cached by its tree, which requests with the same text share."""
        tree = statement.tree
        with self._lock:
            known = self._programs.get(id(tree))
            if known is not None:
                self._programs.move_to_end(id(tree))
                return known[1]
        program = program_of(statement, self.find)
        if len(statement.text) > _CACHED_CHARACTERS:
            return program
        with self._lock:
            # The tree is kept so that no other tree gets the same address.
            self._programs[id(tree)] = tree, program
            if len(self._programs) > _CACHED_PROGRAMS:
                self._programs.popitem(last=False)
        return program

    def plans(self, program: PlannedWrite) -> PlanCache:
        """Return the plans of a write, which are kept as long as its program. Called by the writer's thread only."""
        found = self._plans.get(id(program))
        if found is None:
            found = program, PlanCache(program)
            self._plans[id(program)] = found
            if len(self._plans) > _CACHED_PROGRAMS:
                self._plans.popitem(last=False)
        return found[1]

    def _clear_programs(self) -> None:
        with self._lock:
            self._programs.clear()
            self._plans.clear()
