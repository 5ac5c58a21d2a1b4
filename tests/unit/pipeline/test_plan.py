"""Only what routes look at is parsed."""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from tailrace.model.ids import RouteId, TableId, TopicId
from tailrace.model.route import Route, RouteSql
from tailrace.pipeline.plan import looked_at

ROW = StructType([StructField(name, LongType()) for name in ("id", "a", "b")] + [StructField("odd`name", StringType())])


def route(condition: str = "TRUE", failure: str = "FALSE", key: str | None = None) -> Route:
    return Route(
        id=RouteId(1),
        topic=TopicId(1),
        topic_name="a.b",
        table=TableId(1),
        table_name="a.t",
        changes=TopicId(2),
        operations=("insert",),
        payload="full",
        sql=RouteSql(condition=condition, failure=failure, key=key),
    )


def names(*routes: Route) -> list[str]:
    return [field.name for field in looked_at(ROW, routes).fields]


def test_columns_that_no_route_names_are_left_out() -> None:
    assert names(route("(new.`a` > 1)")) == ["a"]


def test_columns_of_all_routes_are_kept_in_the_order_of_the_table() -> None:
    assert names(route("(old.`b` = 1)"), route("(new.`id` = 1)")) == ["id", "b"]


def test_failures_and_keys_name_columns_too() -> None:
    assert names(route(failure="(new.`a` IS NULL)", key="concat('[', new.`odd``name`, ']')")) == ["a", "odd`name"]


def test_a_row_keeps_a_column_though_none_is_named() -> None:
    assert names(route("FALSE")) == ["id"]
