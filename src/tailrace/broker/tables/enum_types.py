"""The definitions of enums, kept in the store.

A column of an enum has the name of its type and takes the labels from here, when the table is loaded and when a label is added.
So a label is added to all tables by one commit, which changes the type alone.
"""

from collections.abc import Iterator

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, SqlError
from tailrace.model.names import without_public
from tailrace.model.route import Route
from tailrace.model.table import ColumnType, EnumType, Table
from tailrace.store.contract import Store

_MAX_TYPES = 10_000
_MAX_LABELS = 1_000
_MAX_LABEL_BYTES = 63
_UNDEFINED = "42704"
_DUPLICATE = "42710"
_INVALID_NAME = "42602"
_INVALID_PARAMETER = "22023"
_UNIQUE = "23505"


class EnumTypes:
    """All enums. Used on the event loop; `find` may be called from any thread."""

    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._by_name: dict[str, EnumType] = {}

    def load(self) -> None:
        """Read the definitions from the store."""
        for _, value in self._store.range(keys.TYPES):
            found = msgspec.msgpack.decode(value, type=EnumType)
            self._by_name[found.name.lower()] = found

    def __iter__(self) -> Iterator[EnumType]:
        return iter(sorted(self._by_name.values(), key=lambda one: one.name))

    def find(self, name: str) -> EnumType | None:
        """Return the type of this name, which may have the schema `public` in front."""
        return self._by_name.get(name.lower()) or self._by_name.get(without_public(name).lower())

    def get(self, name: str) -> EnumType:
        found = self.find(name)
        if found is None:
            raise SqlError(f"type {name!r} does not exist", sqlstate=_UNDEFINED)
        return found

    async def create(self, name: str, labels: tuple[str, ...]) -> EnumType:
        if self.find(name) is not None:
            raise SqlError(f"type {name!r} already exists", sqlstate=_DUPLICATE)
        name = without_public(name)
        if len(self._by_name) >= _MAX_TYPES:
            raise LimitExceededError(f"there are {_MAX_TYPES} types, as many as there can be; drop one")
        for label in labels:
            _check_label(label)
            if labels.count(label) > 1:
                raise SqlError(f"the label {label!r} is in the enum twice; name it once", sqlstate=_UNIQUE)
        if len(labels) > _MAX_LABELS:
            raise LimitExceededError(f"an enum has at most {_MAX_LABELS} labels; use a table")
        return await self._put(EnumType(name=name, labels=labels, created_ms=self._clock.now_ms()), is_new=True)

    async def add_label(self, name: str, label: str, neighbor: str | None, *, is_after: bool) -> EnumType:
        """Add a label behind the others, or before or behind one of them."""
        found = self.get(name)
        _check_label(label)
        if label in found.labels:
            raise SqlError(f"enum label {label!r} already exists", sqlstate=_DUPLICATE)
        if len(found.labels) >= _MAX_LABELS:
            raise LimitExceededError(f"an enum has at most {_MAX_LABELS} labels; use a table")
        if neighbor is not None and neighbor not in found.labels:
            raise SqlError(f"{neighbor!r} is not an existing enum label", sqlstate=_INVALID_PARAMETER)
        labels = list(found.labels)
        labels.insert(len(labels) if neighbor is None else labels.index(neighbor) + is_after, label)
        return await self._put(msgspec.structs.replace(found, labels=tuple(labels)), is_new=False)

    async def drop(self, name: str) -> None:
        found = self.get(name)

        def settled(_: CommitReceipt | None) -> None:
            self._by_name.pop(found.name.lower(), None)

        await self._committer.submit(Change(lambda: Changes(puts=((keys.type_key(found.name), None),)), settled))

    def with_labels(self, table: Table) -> Table:
        """Return a table whose columns have the labels that their types have now."""
        columns = tuple(
            msgspec.structs.replace(column, type=self._with_labels(column.type)) if _enum_in(column.type) else column
            for column in table.columns
        )
        return table if columns == table.columns else msgspec.structs.replace(table, columns=columns)

    def with_route_labels(self, route: Route) -> Route:
        """Return a route whose expressions know the labels that were added since it was made."""
        python = route.sql.python
        if python is None or not any(map(_enum_in, python.columns.values())):
            return route
        columns = {name: self._with_added_labels(type_) for name, type_ in python.columns.items()}
        sql = msgspec.structs.replace(route.sql, python=msgspec.structs.replace(python, columns=columns))
        return msgspec.structs.replace(route, sql=sql)

    def _with_added_labels(self, type_: ColumnType) -> ColumnType:
        """Return the type with more labels, unless its name belongs to another one by now."""
        if type_.element is not None:
            return msgspec.structs.replace(type_, element=self._with_added_labels(type_.element))
        found = self._with_labels(type_)
        is_same = [label for label in found.labels if label in type_.labels] == list(type_.labels)
        return found if is_same else type_

    def uses(self, table: Table, name: str) -> bool:
        """Return whether a column of a table has this type."""
        return any(_enum_in(column.type).lower() == name.lower() for column in table.columns)

    def _with_labels(self, type_: ColumnType) -> ColumnType:
        if type_.element is not None:
            return msgspec.structs.replace(type_, element=self._with_labels(type_.element))
        found = self.find(type_.name)
        return type_ if found is None else msgspec.structs.replace(type_, name=found.name, labels=found.labels)

    async def _put(self, changed: EnumType, *, is_new: bool) -> EnumType:
        def decide() -> Changes:
            if is_new and self._store.latest(keys.type_key(changed.name)) is not None:
                raise SqlError(f"type {changed.name!r} already exists", sqlstate=_DUPLICATE)
            return Changes(puts=((keys.type_key(changed.name), msgspec.msgpack.encode(changed)),))

        def settled(_: CommitReceipt | None) -> EnumType:
            self._by_name[changed.name.lower()] = changed
            return changed

        return await self._committer.submit(Change(decide, settled))


def _enum_in(type_: ColumnType) -> str:
    """Return the name of the enum that a type is or has as its elements; empty if there is none."""
    while type_.element is not None:
        type_ = type_.element
    return type_.name if type_.kind == "enum" else ""


def _check_label(label: str) -> None:
    if not 0 < len(label.encode(errors="replace")) <= _MAX_LABEL_BYTES or not label.isprintable():
        raise SqlError(
            f"invalid enum label {label[:60]!r}; labels have 1 to {_MAX_LABEL_BYTES} bytes and no control characters",
            sqlstate=_INVALID_NAME,
        )
