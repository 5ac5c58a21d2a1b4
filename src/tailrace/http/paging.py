"""Long lists in pages: `limit` items after the one that `after` names."""

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from msgspec import Meta

from tailrace.model.errors import LimitExceededError

DEFAULT_PAGE = 100
LARGEST_PAGE = 1_000
PageSize = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]
"""The bounds are for the document; `page` holds callers to them."""

T = TypeVar("T")


def page(items: Iterable[T], name: Callable[[T], str], after: str, limit: int) -> tuple[list[T], str | None]:
    """The page, and what to ask for as `after` to get the next one; `None` after the last. Items come
    ordered by name; an empty `after` is before them all."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise LimitExceededError(f"{limit} items were asked for; a page has 1 to {LARGEST_PAGE}")
    found: list[T] = []
    for item in items:
        if after and name(item) <= after:
            continue
        if len(found) == limit:
            return found, name(found[-1])
        found.append(item)
    return found, None
