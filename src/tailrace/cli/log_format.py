"""How a server writes its log to stderr: lines of text, or a JSON object on each line.

A line has the time, the level and, while a request of somebody is handled, who that is and from where. What a client sends
can't begin a line of its own: signs that do not print are escaped.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]


def configure_logging(log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Write warnings and errors of all modules to stderr."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    """`2026-05-04T08:15:00.123Z WARNING tailrace.http: the message [alice, 10.0.0.7]`, and below the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        name, host = _sender()
        sender = f" [{', '.join(part for part in (name, host) if part)}]" if name or host else ""
        line = f"{_time(record)} {record.levelname} {record.name}: {escaped(record.getMessage() + sender)}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """An object with `time`, `level`, `logger`, `message` and, where they are known, `principal`, `client` and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        name, host = _sender()
        line = {"time": _time(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if name:
            line["principal"] = name
        if host:
            line["client"] = host
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Lone surrogates, such as of names of files, can't be encoded.
        readable = {key: value.encode(errors="replace").decode() for key, value in line.items()}
        return msgspec.json.encode(readable).decode()


def escaped(text: str) -> str:
    """Return the text with signs that do not print as escapes."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _sender() -> tuple[str, str]:
    """Return the name and address of whoever sent the request that is being handled, if there is one."""
    from tailrace.broker.security.principals import current_principal

    principal = current_principal()
    # The server itself, and everybody while there is no authentication.
    return ("", principal.host) if principal.is_server else (principal.name, principal.host)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
