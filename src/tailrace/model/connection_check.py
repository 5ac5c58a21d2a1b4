"""What is checked of another system, a database or a Kafka, before a process is to connect to it again and again.

Sources and shadows share it: the process that checks runs beside the server and writes a list of these.
"""

from typing import Literal, NamedTuple


class ConnectionCheck(NamedTuple):
    """One thing that was checked."""

    name: str
    result: Literal["ok", "warning", "failed"]
    detail: str
    advice: str = ""
