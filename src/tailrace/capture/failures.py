"""What can go wrong with a database that is captured. Each failure says what happened, what to do and whether waiting helps."""

import re
from typing import Literal

import psycopg

from tailrace.model.errors import TailraceError

_SECRETS = re.compile(r"(password|passfile|sslpassword)\s*=\s*('[^']*'|\S+)", re.IGNORECASE)
_LINES = 3


class CaptureError(Exception):
    """Why a source can't be captured now."""

    def __init__(self, message: str, advice: str, *, state: Literal["retrying", "failed"]) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.state: Literal["retrying", "failed"] = state
        """`retrying` may pass by itself, `failed` does not. Both are tried again, with a growing pause."""


class SlotLostError(CaptureError):
    """The slot does not have everything since the last captured transaction. No new one is created in its place."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            "Changes since the last captured transaction may be missing, so no new slot is created in its place. Run ALTER"
            " SOURCE ... RESYNC, or tailrace snapshot SOURCE --resync: it creates one, compares the tables with the log and"
            " writes what differs",
            state="failed",
        )


def connection_failure(error: psycopg.Error, what: str) -> CaptureError:
    """Return the failure that an error of the driver means."""
    text = _one_line(error)
    sqlstate = error.sqlstate or ""
    state: Literal["retrying", "failed"] = "retrying"
    if "password" in text or sqlstate.startswith("28"):
        state = "failed"
        advice = "Check the user in the source's URL, its password (password_env, password_file), and pg_hba.conf"
    elif sqlstate == "3D000" or ("database" in text and "does not exist" in text):
        state = "failed"
        advice = "Check the name of the database in the source's URL"
    elif sqlstate == "42501" or "permission denied" in text or "must be superuser or" in text:
        state = "failed"
        advice = "Grant the user of the source what it lacks: ALTER ROLE ... REPLICATION, and SELECT on the captured tables"
    elif sqlstate == "53400" or "all replication slots are in use" in text:
        state = "failed"
        advice = "Raise max_replication_slots in the database, or drop slots that nobody uses (pg_replication_slots)"
    elif "max_wal_senders" in text or sqlstate == "53300":
        advice = "Raise max_wal_senders or max_connections in the database if this lasts"
    elif "SSL" in text or "certificate" in text:
        state = "failed"
        advice = "Check sslmode and sslrootcert in the source's URL"
    else:
        advice = "It is tried again by itself. Check that the database runs and can be reached from here"
    return CaptureError(f"{what}: {text}", advice, state=state)


def server_failure(error: TailraceError) -> CaptureError:
    """Return the failure that an error of the Tailrace server means."""
    return CaptureError(f"the server did not take what was captured: {error}", "See the log of the server", state="retrying")


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _SECRETS.sub(r"\1=***", "; ".join(lines[:_LINES]) or type(error).__name__)
