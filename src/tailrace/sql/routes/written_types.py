"""The types that a cast can name."""

from sqlglot import exp

from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.routes.refusals import wrong
from tailrace.sql.routes.types import MOST_DIGITS

_KINDS: dict[exp.DType, ColumnKind] = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.DOUBLE: "double",
    exp.DType.DECIMAL: "decimal",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "text",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.UUID: "uuid",
}


def written_type(cast: exp.Cast) -> ColumnType:
    to = cast.to
    kind = _KINDS.get(to.this)
    parameters = [int(part.name) for part in to.expressions if part.name.isdigit()]
    if kind is None or len(parameters) != len(to.expressions) or (parameters and kind != "decimal"):
        raise wrong(cast, f"a route can't cast to {to.sql(dialect='postgres').lower()}")
    if kind != "decimal":
        return ColumnType(kind)
    if not parameters:
        raise wrong(cast, "say how many digits the decimal has, as in decimal(12, 2)")
    precision, scale = parameters[0], parameters[1] if len(parameters) > 1 else 0
    if not 1 <= precision <= MOST_DIGITS or not 0 <= scale <= precision:
        raise wrong(cast, f"a decimal has 1 to {MOST_DIGITS} digits, and no more of them behind the point")
    return ColumnType("decimal", precision=precision, scale=scale)
