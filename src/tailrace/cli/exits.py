"""What the exit codes of `tailrace` mean."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    REFUSED = 1
    """What was asked for can't be done, or `fsck` found something wrong. The one line on stderr says what."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 69
    """No server answers, or it went away in the middle of a read."""
    UNKNOWN = 70
    """It was asked for and no answer came: it may have taken effect or not. Look before you ask again."""
    STORAGE_FAILED = 74
    """The folder can't be opened, or a write or sync failed. What was acknowledged is safe; check the disk and start again."""
    STOP_TIMED_OUT = 75
    """The server did not finish within its stop time and was ended. What was acknowledged is safe."""
    INTERRUPTED = 130
    """Ctrl-C ended it."""
