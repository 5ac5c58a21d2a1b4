"""The regular expressions of Kafka's clients, which mean what RE2 says, as in Kafka. A name matches if the whole of it does.

Nothing in them makes RE2 backtrack, but what it does for each character of a name grows with the size of the expression once
its counted repetitions are written out: four hundred characters in `(?:...){1000}` take a second for each name. So that size is
bounded. Expressions are matched in a reader thread, one after another, so that they never take more than one of the threads.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping

from tailrace.broker.read_threads import ReadThreads
from tailrace.model.errors import InvalidRegularExpressionError
from tailrace.model.limits import Limits


class RegularExpressions:
    def __init__(self, threads: ReadThreads, limits: Limits) -> None:
        self._threads = threads
        self._limits = limits
        self._turn = asyncio.Lock()

    def check(self, pattern: str) -> None:
        """Raise `InvalidRegularExpressionError` if the expression is too large, or has Unicode."""
        allowed = self._limits.topic_pattern_bytes
        size = len(pattern.encode())
        if size > allowed:
            raise InvalidRegularExpressionError(
                f"the regular expression has {size} bytes, more than topic_pattern_bytes allows ({allowed})"
            )
        # A class of Unicode that ignores case takes RE2 20 ms to read, however short it is.
        if not pattern.isascii() or not _UNICODE_CLASSES.isdisjoint(_ESCAPED.findall(pattern)):
            raise InvalidRegularExpressionError(
                f"the regular expression {pattern!r} has characters or classes (\\p) of Unicode, but names are ASCII;"
                " write [A-Za-z] for letters"
            )
        size = expanded_size(pattern)
        if size > allowed:
            raise InvalidRegularExpressionError(
                f"the regular expression {pattern!r} has {size} bytes with its counted repetitions written out, more than"
                f" topic_pattern_bytes allows ({allowed})"
            )

    async def match(self, patterns: Iterable[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the names that match each pattern. Raises `InvalidRegularExpressionError`."""
        wanted = tuple(patterns)
        for pattern in wanted:
            self.check(pattern)
        if not wanted:
            return {}
        async with self._turn:
            return await self._threads.run(_match, wanted, tuple(names))


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_UNICODE_CLASSES = frozenset("pP")
_TOKENS = re.compile(
    r"""
      (?P<nothing> [*+?] | \\Q\\E | \(\? [A-Za-z-]* \) )
    | (?P<quoted>  \\Q .*? (?: \\E | \Z ) )
    | (?P<class>   \[ \^? \]? (?: \[: \^? [a-z]{4,6} :\] | \\. | [^\]\\] )*+ \] )
    | (?P<escape>  \\ (?: x \{ [^}]* \} | . ) )
    | (?P<count>   \{ (?P<least> \d{1,9} ) (?: , (?P<most> \d{0,9} ) )? \} )
    | (?P<open>    \( )
    | (?P<close>   \) )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
"""The tokens of RE2. `nothing` is what a count looks through to the element before."""


def expanded_size(pattern: str) -> int:
    """Return the length of an expression with its counted repetitions written out."""
    groups = [0]
    """The sizes of the groups that are open, without their last elements."""
    last = 0
    """The size of the last element, which a count would repeat."""
    for token in _TOKENS.finditer(pattern):
        kind = token.lastgroup
        if token["count"] is not None:
            last *= max(1, int(token["least"]), int(token["most"] or 0))
        elif kind == "nothing":
            last += len(token[0])
        else:
            groups[-1] += last
            last = len(token[0])
            if kind == "open":
                groups.append(0)
            elif kind == "close" and len(groups) > 1:
                last += groups.pop()
    return sum(groups) + last


def _match(patterns: tuple[str, ...], names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    # Not needed by a server whose clients use no regular expressions.
    import pyarrow as pa
    import pyarrow.compute as pc

    # RE2's programs for bytes are smaller than those for UTF-8.
    texts = pa.array([name.encode() for name in names], pa.binary())
    # Of an array without elements no pattern is compiled.
    nothing = pa.array([b""], pa.binary())
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            # By itself, too: a closing parenthesis that opens nowhere would end the group around the pattern.
            pc.match_substring_regex(nothing, pattern)
            matches = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
        except pa.ArrowInvalid as error:
            raise InvalidRegularExpressionError(f"the regular expression {pattern!r} is not valid: {error}") from error
        found[pattern] = frozenset(name for name, is_match in zip(names, matches.to_pylist(), strict=True) if is_match)
    return found
