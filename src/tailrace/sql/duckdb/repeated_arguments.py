"""Keeps what a macro repeats short.

A macro is replaced by its text, so that calls within calls of macros that use an argument several times would grow with each
level. Such an argument is computed once, as a field of the variable of a lambda, if it is long or differs each time.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

_MACRO = re.compile(r"CREATE MACRO (\w+)\(([^)]*)\) AS(.*?);\n", re.DOTALL)
_NAME = re.compile(r"\b(\w+)\(")
_VARIABLE = re.compile(r"\bcall_(\d+)\b")
_LONG = 200
_VOLATILE = re.compile(r"\b(random|setseed|uuid|uuidv7|clock_timestamp)\(")


@cache
def _repeating() -> frozenset[str]:
    """Return the macros that use an argument several times, or call one that does."""
    folder = resources.files(__package__).joinpath("macros")
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql")]
    macros = [found for text in texts for found in _MACRO.findall(text)]
    called = {name: set(_NAME.findall(body)) for name, _, body in macros}
    found = {name for name, parameters, body in macros if _uses(parameters, body) > 1}
    while more := {name for name, names in called.items() if name not in found and names & found}:
        found |= more
    return frozenset(found)


def _uses(parameters: str, body: str) -> int:
    return max(len(re.findall(rf"\b{parameter.strip()}\b", body)) for parameter in parameters.split(","))


def is_volatile(text: str) -> bool:
    """Return whether a text of DuckDB has another value each time that it is evaluated."""
    return _VOLATILE.search(text) is not None


def written(template: Callable[[Sequence[str]], str], arguments: Sequence[str]) -> str:
    """Return a template with its arguments filled in, each of which is computed once."""
    text = template(arguments)
    long = [at for at, one in enumerate(arguments) if len(one) > _LONG or is_volatile(one)]
    if not long or not _is_repeating(template, text, len(arguments)):
        return text
    number = 1 + max((int(one) for one in _VARIABLE.findall(text)), default=0)
    names = [f"call_{number}.a{at}" if at in long else one for at, one in enumerate(arguments)]
    fields = ", ".join(f"'a{at}': {arguments[at]}" for at in long)
    return f"list_transform([{{{fields}}}], lambda call_{number}: {template(names)})[1]"


def _is_repeating(template: Callable[[Sequence[str]], str], text: str, count: int) -> bool:
    marks = [f"argument_{at}_" for at in range(count)]
    bare = template(marks)
    return any(bare.count(mark) > 1 for mark in marks) or bool(_repeating() & set(_NAME.findall(bare)))
