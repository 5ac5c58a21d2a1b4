"""The names that PostgreSQL gives to columns of results that have none."""

from tailrace.sql.analysis.parse_tree import Node


def column_name(node: Node) -> str:
    """Return the name that PostgreSQL gives to a column without one."""
    return _figured(node)[0] or "?column?"


def _figured(node: Node) -> tuple[str | None, int]:
    """Return the name of an expression and how good it is, from 0 to 2."""
    ((kind, fields),) = node.items()
    match kind:
        case "ColumnRef":
            return next(part["String"]["sval"] for part in reversed(fields["fields"]) if "String" in part), 2
        case "A_Indirection":
            fields_named = [step["String"]["sval"] for step in fields["indirection"] if "String" in step]
            return (fields_named[-1], 2) if fields_named else _figured(fields["arg"])
        case "FuncCall":
            return fields["funcname"][-1]["String"]["sval"], 2
        case "A_Expr" if fields["kind"] == "AEXPR_NULLIF":
            return "nullif", 2
        case "TypeCast":
            name, strength = _figured(fields["arg"])
            return (name, strength) if strength > 1 else (fields["typeName"]["names"][-1]["String"]["sval"], 1)
        case "CollateClause":
            return _figured(fields["arg"])
        case "CaseExpr":
            name, strength = _figured(fields["defresult"]) if "defresult" in fields else (None, 0)
            return (name, strength) if strength > 1 else ("case", 1)
        case "SubLink":
            return _figured_subquery(fields)
        case "SQLValueFunction":
            return fields["op"].removeprefix("SVFOP_").removesuffix("_N").lower(), 2
        case "MinMaxExpr":
            return ("greatest" if fields["op"] == "IS_GREATEST" else "least"), 2
    name = {"CoalesceExpr": "coalesce", "A_ArrayExpr": "array", "RowExpr": "row", "GroupingFunc": "grouping"}.get(kind)
    return name, 2 if name is not None else 0


def _figured_subquery(fields: Node) -> tuple[str | None, int]:
    kind = fields["subLinkType"]
    if kind == "EXISTS_SUBLINK":
        return "exists", 2
    if kind == "ARRAY_SUBLINK":
        return "array", 2
    targets = fields["subselect"]["SelectStmt"].get("targetList") if kind == "EXPR_SUBLINK" else None
    if not targets:
        return None, 0
    target = targets[0]["ResTarget"]
    return (target["name"], 2) if target.get("name") else _figured(target["val"])
