"""Long lists in pages: `limit` items after the one that `after` names."""

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from msgspec import Meta

DEFAULT_PAGE = 100
PageSize = Annotated[int, Meta(ge=1, le=1_000)]

T = TypeVar("T")


def page(items: Iterable[T], name: Callable[[T], str], after: str | None, limit: int) -> tuple[list[T], str | None]:
    """The page, and what to ask for as `after` to get the next one; `None` after the last. Items come ordered by name."""
    found: list[T] = []
    for item in items:
        if after is not None and name(item) <= after:
            continue
        if len(found) == limit:
            return found, name(found[-1])
        found.append(item)
    return found, None
