"""Compiles loops by numba, once for a machine: what was compiled is kept beside the code, or in the user's cache."""

# mypy: disable-error-code="no-untyped-call"
from collections.abc import Callable
from typing import Any

import numba
from numba import types, uint8

READ_BYTES = types.Array(uint8, 1, "C", readonly=True)
WRITTEN_BYTES = uint8[::1]


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For these types, now; the loop then runs without the interpreter's lock."""

    def compile_one(loop: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(signature, nogil=True, cache=True)(loop)  # type: ignore[no-any-return]
        except RuntimeError:
            # There is no folder to keep it in.
            return numba.njit(signature, nogil=True)(loop)  # type: ignore[no-any-return]

    return compile_one
