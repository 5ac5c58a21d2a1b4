"""A process that ends when the one that started it does, whatever that dies of.

The parent makes the child's stdin a pipe and keeps the other end, which nobody else has: the kernel closes it when the parent
ends, by whatever signal, and the child reads the end of the pipe. Unlike `PR_SET_PDEATHSIG` this does not depend on which
thread of the parent has started the child, and it holds across an `exec` of the child.
"""

import contextlib
import os
import signal
import threading
import time

_VARIABLE = "TAILRACE_ENDS_WITH_STDIN"
ENDS_WITH_PARENT = {_VARIABLE: "1"}
"""What the environment of a `tailrace` command holds that is to end with its parent."""

_STDIN = 0
_READ_BYTES = 4096


def end_with_parent_if_asked(grace_seconds: float = 0.0) -> None:
    """Do as `end_with_parent`, where the parent has asked for it; processes that this one starts are not asked."""
    if os.environ.pop(_VARIABLE, None) is not None:
        end_with_parent(grace_seconds)


def end_with_parent(grace_seconds: float = 0.0) -> None:
    """End this process when its stdin ends: by SIGTERM with some time to finish, or without any by SIGKILL at once."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(_STDIN, _READ_BYTES):
                pass
        if grace_seconds:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="tailrace-parent-watch", daemon=True).start()
