"""Finds the function, operator or cast that PostgreSQL would choose for arguments of given types.

The candidates are those of a real PostgreSQL (`catalog.tsv`), and the rules are those of its documentation ("Type Conversion"):
an exact match first; then what implicit casts can reach, preferring the candidate with the most exact matches, then preferred
types, then the category that string constants suggest. Whether an engine implements the choice is decided later.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

from tailrace.sql.analysis.types import SqlType, is_enum

CastContext = Literal["implicit", "assignment", "explicit"]
FunctionKind = Literal["f", "a", "w"]

_CONTEXTS: dict[str, CastContext] = {"i": "implicit", "a": "assignment", "e": "explicit"}
_RANK: dict[CastContext, int] = {"implicit": 0, "assignment": 1, "explicit": 2}
_STRINGS = frozenset(("text", "varchar", "bpchar"))
_POLYMORPHIC = frozenset(("anyelement", "anyarray", "anynonarray", "anyenum"))
_COMPATIBLE = frozenset(("anycompatible", "anycompatiblearray", "anycompatiblenonarray"))


class Signature(NamedTuple):
    """A function or operator with the types that it takes and returns, which may be polymorphic."""

    name: str
    arguments: tuple[str, ...]
    result: str
    kind: FunctionKind = "f"
    is_set: bool = False
    is_variadic: bool = False
    defaults: int = 0
    key: str = ""
    """The signature as PostgreSQL's catalog has it: `int4 + int8`, `- int4`, `substr(text, int4)`. Engines implement keys."""


class Resolved(NamedTuple):
    """A signature that was chosen, with the types that its arguments are cast to and the type of its result."""

    signature: Signature
    arguments: tuple[str, ...]
    result: str


class PostgresCatalog:
    def __init__(self, text: str) -> None:
        self._categories: dict[str, str] = {}
        self._preferred: set[str] = set()
        self._casts: dict[tuple[str, str], CastContext] = {}
        self._operators: dict[tuple[str, int], list[Signature]] = {}
        self._functions: dict[str, list[Signature]] = {}
        for line in text.splitlines():
            kind, *fields = line.split("\t")
            if kind == "type":
                self._categories[fields[0]] = fields[1]
                if len(fields) > 2:
                    self._preferred.add(fields[0])
            elif kind == "cast":
                self._casts[fields[0], fields[1]] = _CONTEXTS[fields[2]]
            elif kind == "operator":
                name, left, right, result = fields
                arguments: tuple[str, ...] = (left, right) if left else (right,)
                key = f"{left} {name} {right}" if left else f"{name} {right}"
                self._operators.setdefault((name, len(arguments)), []).append(Signature(name, arguments, result, key=key))
            elif kind == "function":
                name, arguments_text, result, function_kind, is_set, is_variadic, defaults = fields
                arguments = tuple(arguments_text.split(",") if arguments_text else ())
                self._functions.setdefault(name, []).append(
                    Signature(
                        name,
                        arguments,
                        result,
                        _kind(function_kind),
                        bool(is_set),
                        bool(is_variadic),
                        int(defaults),
                        f"{name}({', '.join(arguments)})",
                    )
                )
        self._add_enums()

    def _add_enums(self) -> None:
        for name in ("=", "<>", "<", "<=", ">", ">="):
            signature = Signature(name, ("anyenum", "anyenum"), "bool", key=f"anyenum {name} anyenum")
            self._operators.setdefault((name, 2), []).append(signature)
        for name in ("min", "max"):
            self._functions[name].append(Signature(name, ("anyenum",), "anyenum", "a", key=f"{name}(anyenum)"))

    def has_function(self, name: str) -> bool:
        return name in self._functions

    def function_names(self) -> Iterator[str]:
        return iter(self._functions)

    def has_type(self, name: str) -> bool:
        return name in self._categories

    def category(self, name: str) -> str:
        """Return PostgreSQL's category of a type: N for numbers, S for strings, X for unknown, and so on."""
        return self._categories.get(name, "U")

    def is_preferred(self, name: str) -> bool:
        return name in self._preferred

    def can_cast(self, source: str, target: str, context: CastContext) -> bool:
        """Return whether a value can be cast in this context."""
        if source == target or source == "unknown":
            return True
        if source.endswith("[]") and target.endswith("[]"):
            return self.can_cast(source[:-2], target[:-2], context)
        known = self._casts.get((source, target))
        if known is not None:
            return _RANK[known] <= _RANK[context]
        # Every type is converted to and from text by its input and output functions.
        if target in _STRINGS and source not in _STRINGS:
            return context != "implicit"
        return source in _STRINGS and target not in _STRINGS and context == "explicit"

    def find_operator(self, name: str, types: Sequence[SqlType]) -> Resolved | None:
        """Return the operator that PostgreSQL would choose, or `None`. Raises `AmbiguousCallError` if it could not decide."""
        given = [sql_type.name for sql_type in types]
        candidates = self._operators.get((name, len(given)), [])
        guessed = given
        if len(given) == 2 and "unknown" in given:
            # A constant beside a typed operand is tried as one of that type first.
            guessed = [given[1 - at] if one == "unknown" else one for at, one in enumerate(given)]
        return _exact(candidates, guessed) or self._choose(candidates, given)

    def find_function(self, name: str, types: Sequence[SqlType]) -> Resolved | None:
        """Return the function that PostgreSQL would choose, or `None`. Raises `AmbiguousCallError` if it could not decide."""
        given = [sql_type.name for sql_type in types]
        candidates = [expanded for signature in self._functions.get(name, ()) for expanded in _expanded(signature, len(given))]
        return _exact(candidates, given) or self._choose(candidates, given)

    def common_type(self, types: Sequence[str]) -> str | None:
        """Return the type of UNION, CASE, COALESCE, ARRAY and the like over these types, or `None` if there is none."""
        known = [one for one in types if one != "unknown"]
        if not known:
            return "text"
        chosen = known[0]
        for one in known[1:]:
            if one == chosen:
                continue
            if self.category(one) != self.category(chosen):
                return None
            if (
                not self.is_preferred(chosen)
                and self.can_cast(chosen, one, "implicit")
                and not self.can_cast(one, chosen, "implicit")
            ):
                chosen = one
        return chosen if all(self.can_cast(one, chosen, "implicit") for one in known) else None

    def _choose(self, candidates: Sequence[Signature], given: Sequence[str]) -> Resolved | None:
        fitting = [found for one in candidates if (found := self._fitted(one, given)) is not None]
        if len(fitting) <= 1:
            return fitting[0] if fitting else None
        for narrowed in self._narrowings(fitting, given):
            if len(narrowed) == 1:
                return narrowed[0]
        raise AmbiguousCallError

    def _narrowings(self, fitting: Sequence[Resolved], given: Sequence[str]) -> Iterator[Sequence[Resolved]]:
        """Yield the candidates after each rule of PostgreSQL's "Function Type Resolution"."""
        best = _best(fitting, lambda one: sum(a == g for a, g in zip(one.signature.arguments, given, strict=True)))
        yield best
        best = _best(
            best,
            lambda one: sum(
                a == g or (self.is_preferred(a) and self.category(a) == self.category(g))
                for a, g in zip(one.signature.arguments, given, strict=True)
            ),
        )
        yield best
        if "unknown" not in given:
            return
        for at, one in enumerate(given):
            if one == "unknown":
                best = self._by_category(best, at)
        yield best
        known = {one for one in given if one != "unknown"}
        if len(known) == 1:
            # All others are of one type: assume that the constants are too.
            (only,) = known
            yield [one for one in best if all(self.can_cast(only, argument, "implicit") for argument in one.arguments)]

    def _by_category(self, candidates: Sequence[Resolved], at: int) -> Sequence[Resolved]:
        categories = {self.category(one.signature.arguments[at]) for one in candidates}
        if "S" in categories:
            chosen = "S"
        elif len(categories) == 1:
            (chosen,) = categories
        else:
            return candidates
        in_category = [one for one in candidates if self.category(one.signature.arguments[at]) == chosen]
        preferred = [one for one in in_category if self.is_preferred(one.signature.arguments[at])]
        return preferred or in_category

    def _fitted(self, signature: Signature, given: Sequence[str]) -> Resolved | None:
        """Return the signature with its polymorphic types decided, if the arguments can be cast to it implicitly."""
        family: set[str] = {*signature.arguments, signature.result}
        bound = None
        if family & _POLYMORPHIC:
            bound = self._bound(signature, given, _POLYMORPHIC, exact=True)
        elif family & _COMPATIBLE:
            bound = self._bound(signature, given, _COMPATIBLE, exact=False)
        if bound is None and family & (_POLYMORPHIC | _COMPATIBLE):
            return None
        arguments = []
        for declared, one in zip(signature.arguments, given, strict=True):
            target = _decided(declared, bound, one)
            if target is None or not self.can_cast(one, target, "implicit"):
                return None
            arguments.append(target)
        result = _decided(signature.result, bound, "")
        return None if result is None else Resolved(signature, tuple(arguments), result)

    def _bound(self, signature: Signature, given: Sequence[str], names: frozenset[str], *, exact: bool) -> str | None:
        """Return the element type that the polymorphic arguments agree on."""
        found = []
        has_enum = "anyenum" in signature.arguments
        for declared, one in zip(signature.arguments, given, strict=True):
            if declared in names and one != "unknown":
                if declared == "anyenum" and not is_enum(one):
                    return None
                if declared.endswith("array") and not declared.endswith("nonarray"):
                    if not one.endswith("[]"):
                        return None
                    found.append(one[:-2])
                elif declared.endswith("nonarray") and one.endswith("[]"):
                    return None
                else:
                    found.append(one)
        if not found:
            return None if has_enum else "text"
        if exact:
            return found[0] if all(one == found[0] for one in found) else None
        return self.common_type(found)


class AmbiguousCallError(Exception):
    """Several candidates fit equally well."""


def _exact(candidates: Sequence[Signature], given: Sequence[str]) -> Resolved | None:
    wanted = tuple(given)
    return next((Resolved(one, wanted, one.result) for one in candidates if one.arguments == wanted), None)


def _best(candidates: Sequence[Resolved], score: Callable[[Resolved], int]) -> Sequence[Resolved]:
    most = max(map(score, candidates))
    return [one for one in candidates if score(one) == most]


def _expanded(signature: Signature, count: int) -> Iterator[Signature]:
    """Yield the signature with exactly this number of arguments, if it can have as many."""
    arguments = signature.arguments
    if signature.is_variadic:
        if count >= len(arguments):
            element = arguments[-1].removesuffix("[]")
            element = {"anyarray": "anyelement", "anycompatiblearray": "anycompatible"}.get(element, element)
            yield signature._replace(arguments=(*arguments[:-1], *[element] * (count - len(arguments) + 1)))
    elif len(arguments) - signature.defaults <= count <= len(arguments):
        yield signature._replace(arguments=arguments[:count])


def _decided(declared: str, bound: str | None, given: str) -> str | None:
    if declared == "any":
        return "text" if given == "unknown" else given
    if bound is None or declared not in _POLYMORPHIC | _COMPATIBLE:
        return declared
    return f"{bound}[]" if declared in ("anyarray", "anycompatiblearray") else bound


def is_polymorphic(name: str) -> bool:
    """Return whether a declared type stands for any type of a kind."""
    return name in _POLYMORPHIC or name in _COMPATIBLE


def _kind(text: str) -> FunctionKind:
    return "a" if text == "a" else "w" if text == "w" else "f"


@cache
def catalog() -> PostgresCatalog:
    """Return PostgreSQL's catalog, which is loaded once."""
    return PostgresCatalog(resources.files(__package__).joinpath("catalog.tsv").read_text("utf-8"))
