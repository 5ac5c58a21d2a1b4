"""Ends a process when its parent ends, even if the parent is killed.

The parent makes the child's stdin a pipe and keeps the other end, which no other process has. The kernel closes it when the
parent ends, and the child reads the end of the pipe. Unlike `PR_SET_PDEATHSIG` this does not depend on which thread of the
parent started the child, and it survives an `exec` of the child.
"""

import contextlib
import os
import signal
import threading
import time

_VARIABLE = "TAILRACE_ENDS_WITH_STDIN"
ENDS_WITH_PARENT = {_VARIABLE: "1"}
"""The environment of a `tailrace` command that is to end with its parent."""

_STDIN = 0
_READ_BYTES = 4096


def end_with_parent_if_asked(grace_seconds: float = 0.0) -> None:
    """Call `end_with_parent` if the parent asked for it by `ENDS_WITH_PARENT`. Child processes do not inherit the request.

    What the parent gives to get in at the server (`server_credentials.py`) is in the environment on return.
    """
    if os.environ.pop(_VARIABLE, None) is not None:
        from tailrace.model.server_credentials import credentials_from_parent

        credentials = credentials_from_parent()
        if credentials is not None:
            credentials.enter_environment()
        end_with_parent(grace_seconds)


def end_with_parent(grace_seconds: float = 0.0) -> None:
    """End this process when its stdin ends: by SIGTERM and, after `grace_seconds`, SIGKILL; at once by SIGKILL if that is 0."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(_STDIN, _READ_BYTES):
                pass
        if grace_seconds:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="tailrace-parent-watch", daemon=True).start()
