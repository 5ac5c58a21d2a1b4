"""Spark sees the cells that routes name, and no others."""

import msgspec

from tailrace.model.ids import RouteId, TableId, TopicId
from tailrace.model.route import Route, RouteSql
from tailrace.pipeline.plan import ROUTES_PER_WORD, CellRef, bits_of, cells_in, over_slots, slots_for, wanted_cells

TYPES = {"id": "bigint", "a": "int", "b": "bigint", "odd`name": "string", "tags": "array<int>"}


def route(table: int = 1, condition: str = "TRUE", failure: str = "FALSE", key: str | None = None) -> Route:
    return Route(
        id=RouteId(1),
        topic=TopicId(1),
        topic_name="a.b",
        table=TableId(table),
        table_name="a.t",
        changes=TopicId(2),
        operations=("insert",),
        payload="full",
        sql=RouteSql(condition=condition, failure=failure, key=key),
    )


def test_cells_of_conditions_failures_and_keys_are_wanted() -> None:
    routes = [route(1, "(new.`a` > 1)", "(old.`b` IS NULL)"), route(1, key="concat('[', new.`odd``name`, ']')"), route(2)]
    assert wanted_cells(routes) == {1: {CellRef("new", "a"), CellRef("old", "b"), CellRef("new", "odd`name")}, 2: set()}


def test_what_stands_in_a_string_or_in_a_name_is_no_cell() -> None:
    assert cells_in("new.`a` = 'new.`b` \\\\' OR old.`new.``c``` = 'it\\'s old.`d`'") == {
        CellRef("new", "a"),
        CellRef("old", "new.`c`"),
    }


def test_tables_share_slots_of_one_type() -> None:
    slots = slots_for(
        {1: {CellRef("new", "id"), CellRef("new", "a"), CellRef("old", "b")}, 2: {CellRef("old", "id")}},
        {1: TYPES, 2: {"id": "bigint"}},
    )
    assert sorted(slots.kinds) == ["bigint", "bigint", "int"]
    own = {slots.slot_of(1, cell) for cell in (CellRef("new", "id"), CellRef("new", "a"), CellRef("old", "b"))}
    assert own == {0, 1, 2}
    assert slots.kinds[slots.slot_of(2, CellRef("old", "id")) or 0] == "bigint"
    assert slots.cover(slots_for({1: {CellRef("new", "a")}}, {1: TYPES}))
    assert not slots.cover(slots_for({1: {CellRef("old", "a")}}, {1: TYPES}))
    assert not slots.cover(slots_for({3: {CellRef("new", "a")}}, {3: TYPES}))


def test_slots_do_not_cover_a_column_that_has_become_another_one() -> None:
    slots = slots_for({1: {CellRef("new", "a")}}, {1: {"a": "string"}})
    assert not slots.cover(slots_for({1: {CellRef("new", "a")}}, {1: {"a": "bigint"}}))
    raw = slots_for({1: {CellRef("new", "a")}}, {1: {"a": "array<int>"}})
    assert raw.cover(slots)
    early, late = ({1: {"new": {"a": [period]}}} for period in ((10, 50), (60, 1000)))
    assert not msgspec.structs.replace(slots, uses=early).cover(msgspec.structs.replace(slots, uses=late))
    assert msgspec.structs.replace(slots, uses=late).cover(msgspec.structs.replace(slots, uses=late))


def test_conditions_are_written_over_slots_and_strings_are_left_alone() -> None:
    slots = slots_for({1: {CellRef("new", "a"), CellRef("old", "a"), CellRef("new", "tags")}}, {1: TYPES})
    (new, old, tags) = (slots.slot_of(1, cell) for cell in (CellRef("new", "a"), CellRef("old", "a"), CellRef("new", "tags")))
    sql = "CASE WHEN new IS NULL THEN old.`a` ELSE new.`a` END = 'new.`a`'"
    assert over_slots(sql, 1, slots, TYPES) == f"CASE WHEN (op = 2) THEN cell_{old} ELSE cell_{new} END = 'new.`a`'"
    assert over_slots("array_size(new.`tags`)", 1, slots, TYPES) == (
        f"array_size(from_json(concat('{{\"v\":', cell_{tags}, '}}'), 'v array<int>').v)"
    )


def test_no_two_routes_have_the_same_bits() -> None:
    places = {bits_of(number, False)[:2] for number in range(3 * ROUTES_PER_WORD)}
    assert len(places) == 3 * ROUTES_PER_WORD
    assert max(shift for _, shift in places) + 2 <= 63
