"""A server that records what the pipeline sends and reads it as `http/pipelines.py` does."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tailrace.api.pipelines import (
    PublishStagesBody,
    ReleaseLeaseBody,
    ReportBody,
    ReportResponse,
    StagesBody,
    TakeLeaseBody,
    WriteStagesBody,
)
from tailrace.pipeline.connection import ServerAddress, ServerConnection

ADDRESS = ServerAddress("http://127.0.0.1:1")
_BODIES: Mapping[str, type[msgspec.Struct]] = {
    "lease": TakeLeaseBody,
    "release": ReleaseLeaseBody,
    "report": ReportBody,
    "publish": PublishStagesBody,
    "write": WriteStagesBody,
    "discard": StagesBody,
}


class RecordedRequest(NamedTuple):
    method: str
    path: str
    body: msgspec.Struct | bytes


class RecordingConnection(ServerConnection):
    """Records requests instead of sending them, and returns the given responses, or raises them, in turn."""

    def __init__(self, *responses: msgspec.Struct | Exception | None) -> None:
        super().__init__(ADDRESS)
        self.requests: list[RecordedRequest] = []
        self._responses = list(responses)

    def send(self, method: str, path: str, body: bytes | None = None, content_type: str = "application/octet-stream") -> bytes:
        data = body or b""
        is_json = content_type == "application/json"
        read = msgspec.json.decode(data, type=_BODIES[path.rpartition("/")[2]]) if is_json else data
        self.requests.append(RecordedRequest(method, path, read))
        default = ReportResponse("batch") if path.endswith("/report") else None
        response = self._responses.pop(0) if self._responses else default
        if isinstance(response, Exception):
            raise response
        return b"" if response is None else msgspec.json.encode(response)
