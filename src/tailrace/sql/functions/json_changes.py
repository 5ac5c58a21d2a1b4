"""Functions of jsonb that make a document from others: `||`, `-`, `#-`, jsonb_set, jsonb_insert and the like."""

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.sql.analysis.json_documents import JsonError, document_text, index_of, read_document, too_deep

_INVALID = "22023"


def concatenate(first: str, second: str) -> str:
    one, other = read_document(first), read_document(second)
    if isinstance(one, dict) and isinstance(other, dict):
        return document_text(one | other)
    return document_text([*_listed(one), *_listed(other)])


def _listed(document: Any) -> list[Any]:
    return document if isinstance(document, list) else [document]


def delete_key(text: str, key: str) -> str:
    return delete_keys(text, [key])


def delete_keys(text: str, keys: Sequence[str | None]) -> str:
    document = read_document(text)
    unwanted = {key for key in keys if key is not None}
    if isinstance(document, dict):
        return document_text({key: value for key, value in document.items() if key not in unwanted})
    if not isinstance(document, list):
        raise JsonError(_INVALID, "cannot delete from scalar")
    return document_text([item for item in document if not (isinstance(item, str) and item in unwanted)])


def delete_index(text: str, index: int) -> str:
    document = read_document(text)
    if isinstance(document, dict):
        raise JsonError(_INVALID, "cannot delete from object using integer index")
    if not isinstance(document, list):
        raise JsonError(_INVALID, "cannot delete from scalar")
    if -len(document) <= index < len(document):
        del document[index]
    return document_text(document)


def delete_path(text: str, path: Sequence[str | None]) -> str:
    def remove(holder: Any, place: Any, is_present: bool) -> None:
        if is_present:
            del holder[place]

    return _changed(text, path, "cannot delete path in scalar", remove, keeps_empty=True)


def set_path(text: str, path: Sequence[str | None], value: str, create: bool) -> str:
    new = read_document(value)

    def replace(holder: Any, place: Any, is_present: bool) -> None:
        if is_present:
            holder[place] = new
        elif create:
            _add(holder, place, new)

    return _changed(text, path, "cannot set path in scalar", replace, keeps_empty=not create)


def insert_path(text: str, path: Sequence[str | None], value: str, after: bool) -> str:
    new = read_document(value)

    def insert(holder: Any, place: Any, is_present: bool) -> None:
        if not is_present:
            _add(holder, place, new)
        elif isinstance(holder, dict):
            raise JsonError(_INVALID, "cannot replace existing key")
        else:
            holder.insert((place if place >= 0 else len(holder) + place) + after, new)

    return _changed(text, path, "cannot set path in scalar", insert)


def _add(holder: Any, place: Any, value: Any) -> None:
    """Add what is not there: an item before the first or after the last, by the sign of its index."""
    if isinstance(holder, dict):
        holder[place] = value
    else:
        holder.insert(0 if place < 0 else len(holder), value)


def _changed(
    text: str,
    path: Sequence[str | None],
    refusal: str,
    change: Callable[[Any, Any, bool], None],
    *,
    keeps_empty: bool = False,
) -> str:
    document = read_document(text)
    if not isinstance(document, dict | list):
        raise JsonError(_INVALID, refusal)
    if keeps_empty and not document:
        return document_text(document)
    holder = document
    for at, step in enumerate(path, 1):
        if step is None:
            raise JsonError("22004", f"path element at position {at} is null")
        place: Any = step
        if isinstance(holder, list):
            place = index_of(step)
            if place is None:
                raise JsonError("22P02", f'path element at position {at} is not an integer: "{step}"')
            is_present = -len(holder) <= place < len(holder)
        elif isinstance(holder, dict):
            is_present = step in holder
        else:
            break
        if at == len(path):
            change(holder, place, is_present)
        elif is_present:
            holder = holder[place]
        else:
            break
    return document_text(document)


def strip_nulls(text: str, in_arrays: bool) -> str:
    """Return the document without fields that are null, and without items of arrays that are if wanted."""

    def stripped(document: Any) -> Any:
        if isinstance(document, dict):
            return {key: stripped(value) for key, value in document.items() if value is not None}
        if isinstance(document, list):
            return [stripped(item) for item in document if not (in_arrays and item is None)]
        return document

    try:
        return document_text(stripped(read_document(text)))
    except RecursionError:
        raise too_deep() from None


def object_of(keys: Sequence[str | None], values: Sequence[str | None]) -> str:
    """Return an object of texts."""
    if len(keys) != len(values):
        raise JsonError("2202E", "mismatched array dimensions")
    if None in keys:
        raise JsonError("22004", "null value not allowed for object key")
    return document_text(dict(zip(keys, values, strict=True)))


def object_of_pairs(items: Sequence[str | None]) -> str:
    """Return an object of texts: a key, its value, the next key and so on."""
    if len(items) % 2:
        raise JsonError("2202E", "array must have even number of elements")
    return object_of(items[::2], items[1::2])
