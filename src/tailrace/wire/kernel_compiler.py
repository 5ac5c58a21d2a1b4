"""Compiles loops by numba, once for a machine: the result is cached beside the source, or in the user's cache.

It is a module of its own because every file of loops imports it, and importing it loads numba.

A function that a loop calls for every record or byte takes pointers: numba counts references to an array at each call, by
atomic operations that take longer than most of what is called. An index of a pointer is never checked and never counted from
the end.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def"
from collections.abc import Callable
from typing import Any

import numba
from numba import int64, types, uint8
from numba.extending import intrinsic

READONLY_BYTES = types.Array(uint8, 1, "C", readonly=True)
WRITABLE_BYTES = uint8[::1]
BYTE_POINTER = types.CPointer(uint8)
LONG_POINTER = types.CPointer(int64)


def generated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function for loops out of one that returns its types and a function that writes its code for LLVM."""
    return intrinsic(function)


@generated
def pointer_to(_, array):
    """Return a pointer to the first element of an array, which must be kept while the pointer is used."""

    def generate(context, builder, signature, arguments):
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


def compiled(signature: Any, *, is_inline: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a loop for these types at once. It runs without the interpreter's lock.

    With `is_inline` it becomes part of the functions that call it, which keeps several results in registers.
    """

    def compile_one(loop: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(signature, nogil=True, cache=True, forceinline=is_inline)(loop)  # type: ignore[no-any-return]
        except RuntimeError:
            # No folder for the cache can be written to.
            return numba.njit(signature, nogil=True, forceinline=is_inline)(loop)  # type: ignore[no-any-return]

    return compile_one
