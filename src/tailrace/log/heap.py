"""Memory that was freed goes back to the system. Without this, glibc keeps what lies between things that are still in use."""

import ctypes


def give_back_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc's own; others give back by themselves
        trim(0)
