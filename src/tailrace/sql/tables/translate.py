"""Translates statements to SQLite's SQL: names of tables, parameters, and everything that SQLite would interpret differently.

The tree is rewritten from its leaves up. Where both mean the same it stays unchanged, and sqlglot writes it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from tailrace.model.errors import SqlError, UnknownTableError, UnsupportedSqlError
from tailrace.model.table import ColumnType, Table
from tailrace.sql.syntax_trees import position_of
from tailrace.sql.tables.decimals import COLLATION
from tailrace.sql.tables.functions import glob_of_like
from tailrace.sql.tables.inference import DECIMAL, TIMESTAMP, FindTable, Inference, type_of_cast

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_DECIMAL_FUNCTIONS: dict[type[Any], str] = {
    exp.Add: "tr_decimal_add",
    exp.Sub: "tr_decimal_sub",
    exp.Mul: "tr_decimal_mul",
    exp.Div: "tr_decimal_div",
    exp.Mod: "tr_decimal_mod",
}
_NORMALIZED_KINDS = frozenset(("decimal", "date", "timestamp", "uuid", "boolean", "bytes"))
"""Types whose values are stored in one normal form, to which everything that is compared with them must be converted."""
_ESCAPE = "\\"


class Translated(NamedTuple):
    sql: str
    parameters: tuple[str, ...]
    """The names in the order of SQLite's numbers."""
    types: tuple[ColumnType | None, ...] | None
    """The types of the result columns; `None` if the query has a `*`."""


class Translation:
    """The translation of one statement. `tree` is changed."""

    def __init__(self, tree: exp.Expr, find: FindTable, types: dict[str, ColumnType], parameters_before: int = 0) -> None:
        self._tree = tree
        self._find = find
        self._types = types
        """The types of casts by name, for the functions that SQLite calls."""
        self._parameters: dict[str, int] = {}
        self._before = parameters_before
        self.names = self._name_tables()
        self.infer = Inference(tree, self.names)

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self._parameters)

    def rewrite(self) -> exp.Expr:
        """Return the tree rewritten for SQLite."""
        root = exp.Paren(this=self._tree)
        for node in reversed(list(root.bfs())):
            if node is root:
                continue
            rewrite = _REWRITES.get(type(node))
            if rewrite is not None:
                new = rewrite(self, node)
                if new is not node:
                    self.infer.remember(new, self.infer(node))
                    node.replace(new)
        tree: exp.Expr = root.this
        return tree

    def finish(self, tree: exp.Expr) -> Translated:
        selects = tree.selects if isinstance(tree, exp.Query) else []
        has_star = any(select.is_star for select in selects)
        types = None if has_star else tuple(self.infer(select) for select in selects)
        return Translated(to_sqlite(tree), self.parameters, types)

    def cast(self, node: exp.Expr, type_: ColumnType) -> exp.Expr:
        """Return a call that converts a value to the stored form of a type."""
        name = str(type_) if type_.precision is not None or type_.kind != "decimal" else "decimal"
        self._types[name] = type_
        cast = exp.Anonymous(this="tr_cast", expressions=[node, exp.Literal.string(name)])
        self.infer.remember(cast, type_)
        return cast

    def _name_tables(self) -> Mapping[str, Table]:
        """Give every table its name in SQLite and an alias, and return the tables by the qualifiers that columns can use."""
        ctes = {cte.alias.lower() for cte in self._tree.find_all(exp.CTE)}
        found = []
        for node in self._tree.find_all(exp.Table):
            name = name_of(node)
            if name is None or ("." not in name and name.lower() in ctes):
                continue
            table = self._find(name)
            if table is None:
                raise UnknownTableError(f"there is no table {name!r}", *(position_of(node) or ()))
            found.append((node, name, table))
        full_names: dict[str, set[str]] = {}
        for _, name, _ in found:
            full_names.setdefault(_bare(name).lower(), set()).add(name.lower())
        names: dict[str, Table] = {}
        for node, name, table in found:
            alias = node.alias or (_bare(name) if len(full_names[_bare(name).lower()]) == 1 else name)
            names[alias.lower()] = names[name.lower()] = table
            node.set("this", exp.to_identifier(table.name, quoted=True))
            node.set("db", None)
            node.set("catalog", None)
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        for column in list(self._tree.find_all(exp.Column)):
            if column.args.get("db") is not None:
                name = ".".join(part.name for part in column.parts[:-1])
                bare = _bare(name)
                short = len(full_names.get(bare.lower(), ())) == 1
                for part in ("db", "catalog"):
                    column.set(part, None)
                column.set("table", exp.to_identifier(bare if short else name, quoted=True))
        return names

    def placeholder(self, node: exp.Expr) -> exp.Expr:
        name = node.name
        if not name:
            raise SqlError("a parameter has no name; write ? or :name", *(position_of(node) or ()))
        number = self._parameters.setdefault(name, self._before + len(self._parameters) + 1)
        return exp.var(f"?{number}")

    def compare(self, node: exp.Expr) -> exp.Expr:
        left, right = node.this, node.expression
        type_ = self._form_of(left, right)
        if type_ is not None:
            node.set("this", self._in_form(left, type_))
            node.set("expression", self._in_form(right, type_))
        return node

    def between(self, node: exp.Expr) -> exp.Expr:
        low, high = node.args["low"], node.args["high"]
        type_ = self._form_of(node.this, low, high)
        if type_ is not None:
            node.set("this", self._in_form(node.this, type_))
            node.set("low", self._in_form(low, type_))
            node.set("high", self._in_form(high, type_))
        return node

    def among(self, node: exp.Expr) -> exp.Expr:
        type_ = self._form_of(node.this)
        if type_ is not None:
            node.set("this", self._in_form(node.this, type_))
            node.set("expressions", [self._in_form(item, type_) for item in node.expressions])
        return node

    def _form_of(self, *nodes: exp.Expr) -> ColumnType | None:
        found = [type_ for node in nodes if (type_ := self.infer(node)) is not None and type_.kind in _NORMALIZED_KINDS]
        kinds = {type_.kind for type_ in found}
        if kinds == {"date", "timestamp"}:
            return TIMESTAMP
        if not found or any(isinstance(node, (exp.Tuple, exp.Null)) for node in nodes):
            return None
        return DECIMAL if found[0].kind == "decimal" else found[0]

    def _in_form(self, node: exp.Expr, type_: ColumnType) -> exp.Expr:
        known = self.infer(node)
        has_form = known is not None and known.kind == type_.kind
        if isinstance(node, (exp.Subquery, exp.Star)):
            return node
        if type_.kind == "decimal":
            kept = node if has_form else self.cast(_exact(node), DECIMAL)
            return kept if isinstance(kept, exp.Column) else collated(kept)
        return node if has_form else self.cast(node, type_)

    def compute(self, node: exp.Expr) -> exp.Expr:
        left, right = node.this, node.expression
        if isinstance(right, exp.Interval):
            return self._shift(node, left, right)
        if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
            return self._shift(node, right, left)
        kinds = [type_.kind if (type_ := self.infer(side)) is not None else None for side in (left, right)]
        if "decimal" in kinds:
            return exp.Anonymous(this=_DECIMAL_FUNCTIONS[type(node)], expressions=[_exact(left), _exact(right)])
        if "timestamp" in kinds or ("date" in kinds and not isinstance(node, (exp.Add, exp.Sub))):
            raise UnsupportedSqlError(
                "this arithmetic on timestamps is not supported; add an INTERVAL, or subtract values of extract(epoch FROM"
                " ...)",
                *(position_of(node) or ()),
            )
        if kinds == ["date", "date"]:
            return exp.Anonymous(this="tr_days", expressions=[left, right])
        if kinds[0] == "date":
            days = exp.DPipe(this=right, expression=exp.Literal.string(" days"))
            return exp.Anonymous(this="tr_shift", expressions=[left, _sign(node), days])
        return node

    def _shift(self, node: exp.Expr, timestamp: exp.Expr, interval: exp.Expr) -> exp.Expr:
        unit = interval.args.get("unit")
        length: exp.Expr = interval.this
        if unit is not None:
            length = exp.DPipe(this=exp.Paren(this=length), expression=exp.Literal.string(f" {unit.name}"))
        return exp.Anonymous(this="tr_shift", expressions=[timestamp, _sign(node), length])

    def negate(self, node: exp.Expr) -> exp.Expr:
        type_ = self.infer(node.this)
        if type_ is not None and type_.kind in ("date", "timestamp"):
            raise UnsupportedSqlError(f"a {type_} can't be negated", *(position_of(node) or ()))
        if not self._is_decimal(node.this):
            return node
        return exp.Anonymous(this="tr_decimal_sub", expressions=[exp.Literal.string("0"), node.this])

    def total(self, node: exp.Expr) -> exp.Expr:
        of = node.this
        if not self._is_decimal(of):
            return node
        return exp.Anonymous(this="tr_decimal_sum" if isinstance(node, exp.Sum) else "tr_decimal_avg", expressions=[of])

    def extreme(self, node: exp.Expr) -> exp.Expr:
        if self._is_decimal(node.this) and not isinstance(node.this, (exp.Column, exp.Distinct)):
            node.set("this", collated(node.this))
        return node

    def absolute(self, node: exp.Expr) -> exp.Expr:
        return exp.Anonymous(this="tr_decimal_abs", expressions=[node.this]) if self._is_decimal(node.this) else node

    def round(self, node: exp.Expr) -> exp.Expr:
        if not self._is_decimal(node.this):
            return node
        digits = node.args.get("decimals") or exp.Literal.number(0)
        return exp.Anonymous(this="tr_decimal_round", expressions=[node.this, digits])

    def order(self, node: exp.Expr) -> exp.Expr:
        by = node.this
        type_ = self.infer(by)
        if isinstance(by, exp.Literal) and by.is_int:
            type_ = self._type_of_place(node, int(by.name))
        if type_ is not None and type_.kind == "decimal":
            node.set("this", collated(by))
        return node

    def _type_of_place(self, node: exp.Expr, number: int) -> ColumnType | None:
        query = node.find_ancestor(exp.Query)
        selects = query.selects if query is not None else []
        return self.infer(selects[number - 1]) if 0 < number <= len(selects) else None

    def _is_decimal(self, node: exp.Expr | None) -> bool:
        type_ = self.infer(node)
        return type_ is not None and type_.kind == "decimal"

    def convert(self, node: exp.Expr) -> exp.Expr:
        type_ = type_of_cast(node.args["to"])
        if type_ is None:
            raise UnsupportedSqlError(
                f"there is no type {node.args['to'].sql()}; docs/reference/sql.md lists the types", *(position_of(node) or ())
            )
        was = self.infer(node.this)
        if was is not None and was.kind == "boolean" and type_.kind == "text":
            words = exp.Literal.string("true"), exp.Literal.string("false")
            return exp.Case(ifs=[exp.If(this=node.this, true=words[0]), exp.If(this=exp.not_(node.this), true=words[1])])
        if was is not None and was.kind == "timestamp" and type_.kind == "date":
            return self.cast(exp.Anonymous(this="substr", expressions=[node.this, _number(1), _number(10)]), type_)
        return self.cast(_exact(node.this) if type_.kind == "decimal" else node.this, type_)

    def like(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.parent, exp.Escape):
            return node
        return self._matching(node, _ESCAPE)

    def escape(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node.this, (exp.Like, exp.ILike)) or not node.expression.is_string or len(node.expression.name) != 1:
            raise UnsupportedSqlError("ESCAPE must be one character in quotes, after LIKE or ILIKE", *(position_of(node) or ()))
        return self._matching(node.this, node.expression.name)

    def _matching(self, node: exp.Expr, escape: str) -> exp.Expr:
        pattern = node.expression
        matching: exp.Expr
        if isinstance(node, exp.Like) and isinstance(pattern, exp.Literal) and pattern.is_string:
            matching = exp.Glob(this=node.this, expression=exp.Literal.string(glob_of_like(pattern.name, escape)))
        else:
            name = "tr_like" if isinstance(node, exp.Like) else "tr_ilike"
            matching = exp.Anonymous(this=name, expressions=[node.this, pattern, exp.Literal.string(escape)])
        return exp.Not(this=exp.Paren(this=matching)) if node.args.get("negate") else matching

    def array(self, node: exp.Expr) -> exp.Expr:
        return exp.Anonymous(this="json_array", expressions=list(node.expressions))


def name_of(table: exp.Expr) -> str | None:
    """Return the name of a table with its namespace, or `None` for a function."""
    parts = table.parts if isinstance(table, exp.Table) else []
    if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
        return None
    return ".".join(part.name for part in parts)


def to_sqlite(tree: exp.Expr) -> str:
    try:
        return tree.sql(dialect="sqlite", identify=True, unsupported_level=ErrorLevel.RAISE, comments=False)
    except UnsupportedError as error:
        raise UnsupportedSqlError(f"the statement is not supported on tables: {error}", *(position_of(tree) or ())) from error


def collated(node: exp.Expr) -> exp.Expr:
    return exp.Collate(this=exp.Paren(this=node), expression=exp.var(COLLATION))


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _exact(node: exp.Expr) -> exp.Expr:
    """Return a number as the text that was written, because SQLite would convert it to a double."""
    if isinstance(node, exp.Paren):
        return _exact(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return exp.Literal.string(f"-{node.this.name}")
    return exp.Literal.string(node.name) if isinstance(node, exp.Literal) and not node.is_string else node


def _sign(node: exp.Expr) -> exp.Expr:
    return _number(-1 if isinstance(node, exp.Sub) else 1)


def _number(number: int) -> exp.Expr:
    return exp.Literal.number(number)


def _call(name: str) -> Callable[[Translation, exp.Expr], exp.Expr]:
    return lambda translation, node: exp.Anonymous(this=name, expressions=[])


def _truncate(translation: Translation, node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="tr_trunc", expressions=[exp.Literal.string(node.args["unit"].name), node.this])


def _extract(translation: Translation, node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="tr_part", expressions=[exp.Literal.string(node.this.name), node.expression])


_REWRITES: dict[type[Any], Callable[[Translation, Any], exp.Expr]] = {
    **dict.fromkeys(_COMPARISONS, Translation.compare),
    **dict.fromkeys(_DECIMAL_FUNCTIONS, Translation.compute),
    **dict.fromkeys((exp.Sum, exp.Avg), Translation.total),
    **dict.fromkeys((exp.Min, exp.Max), Translation.extreme),
    **dict.fromkeys((exp.Like, exp.ILike), Translation.like),
    **dict.fromkeys((exp.CurrentTimestamp, exp.Localtimestamp), _call("tr_now")),
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc), _truncate),
    exp.Placeholder: Translation.placeholder,
    exp.Between: Translation.between,
    exp.In: Translation.among,
    exp.Neg: Translation.negate,
    exp.Abs: Translation.absolute,
    exp.Round: Translation.round,
    exp.Ordered: Translation.order,
    exp.Cast: Translation.convert,
    exp.Escape: Translation.escape,
    exp.Array: Translation.array,
    exp.Extract: _extract,
    exp.CurrentDate: _call("tr_today"),
    exp.Uuid: _call("tr_uuid4"),
    exp.Rand: _call("tr_random"),
}
