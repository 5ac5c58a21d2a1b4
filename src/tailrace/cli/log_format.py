"""How a server writes its log to stderr: lines of text, or a JSON object on each line."""

from typing import Literal

LogFormat = Literal["text", "json"]
