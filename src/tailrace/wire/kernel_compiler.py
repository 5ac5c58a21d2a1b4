"""Compiles loops by numba, once for a machine: the result is cached beside the source, or in the user's cache.

It is a module of its own because every file of loops imports it, and importing it loads numba.
"""

# mypy: disable-error-code="no-untyped-call"
from collections.abc import Callable
from typing import Any

import numba
from numba import types, uint8

READONLY_BYTES = types.Array(uint8, 1, "C", readonly=True)
WRITABLE_BYTES = uint8[::1]


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a loop for these types at once. It runs without the interpreter's lock."""

    def compile_one(loop: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(signature, nogil=True, cache=True)(loop)  # type: ignore[no-any-return]
        except RuntimeError:
            # No folder for the cache can be written to.
            return numba.njit(signature, nogil=True)(loop)  # type: ignore[no-any-return]

    return compile_one
