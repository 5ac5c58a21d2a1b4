"""A request to each endpoint of HTTP that is about something of the tenant `acme`.

What else is in it does not matter: permissions are checked before anything is looked up.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.security.secured_server import ADMINISTRATOR, PASSWORD

TOPIC, GROUP, TABLE, SOURCE, SHADOW = "acme.orders", "acme.readers", "acme.bills", "acme_db", "acme_copy"
_NAMES = {"topics": TOPIC, "tables": TABLE, "pipelines": "acme.pipe", "sources": SOURCE, "shadows": SHADOW}
"""What `{name}` is in the path, by the part of the path before it."""
_EPOCH = {"epoch": 1}
_REPORT: dict[str, Any] = {**_EPOCH, "owner": "me", "report": {}}
_CAPTURED = {
    "source": 1,
    "schema": "public",
    "relation": "bills",
    "oid": 1,
    "identity": "default",
    "table": {"id": 1, "name": "acme_db.public.bills", "columns": [], "primary_key": [], "changes": 1, "created_ms": 0},
}
_POSITIONS = [{"partition_id": 0, "offset": 0}]


class Body(NamedTuple):
    content: Any = None
    """JSON, or bytes."""
    query: Mapping[str, str] = {}
    media_type: str = "application/octet-stream"
    """Of bytes."""


BODIES: Mapping[str, Body] = {
    "POST /api/login": Body({"name": ADMINISTRATOR, "password": PASSWORD}),
    "POST /api/sql": Body({"sql": "SELECT 1"}),
    "GET /api/subscribe": Body(query={"pattern": TOPIC}),
    "WEBSOCKET /api/subscribe": Body(query={"pattern": TOPIC}),
    "POST /api/topics": Body({"name": "acme.made"}),
    "PATCH /api/topics/{name}": Body({"settings": {"retention_seconds": 1_000_000}}),
    "POST /api/topics/publish": Body({"messages": [{"topic": TOPIC, "value": "x"}]}),
    "POST /api/topics/fetch": Body({"topic": TOPIC, "positions": _POSITIONS}),
    "POST /api/topics/consume": Body({"topic": TOPIC, "group_id": GROUP}),
    "POST /api/topics/ack": Body({"topic": TOPIC, "group_id": GROUP, "upto_offset": 0}),
    "POST /api/topics/commit": Body({"topic": TOPIC, "group_id": GROUP, "upto_offset": 0}),
    "PUT /api/groups/{group_id}/offsets": Body({"topic": TOPIC, "start": "latest"}),
    # The session timeout is refused after the permissions were checked, so nobody waits for a group to form.
    "POST /api/groups/{group_id}/join": Body({"protocols": [{"name": "range", "metadata": ""}], "session_timeout_ms": 1}),
    "POST /api/groups/{group_id}/sync": Body({"member_id": "m", "generation": 1}),
    "POST /api/groups/{group_id}/heartbeat": Body({"member_id": "m", "generation": 1}),
    "POST /api/groups/{group_id}/leave": Body({"member_id": "m"}),
    "POST /api/groups/{group_id}/begin": Body({"topic": TOPIC, "partitions": [0]}),
    "POST /api/groups/{group_id}/commit": Body({"offsets": [{"topic": TOPIC, "partition_id": 0, "offset": 0}]}),
    "POST /api/queues/{group_id}/receive": Body({"pattern": TOPIC}),
    "POST /api/queues/{group_id}/ack": Body({"receipts": []}),
    "POST /api/queues/{group_id}/nack": Body({"receipts": []}),
    "POST /api/queues/{group_id}/extend": Body({"receipts": []}),
    "POST /api/tables/{name}/rows": Body(b"", media_type="application/vnd.apache.arrow.stream"),
    "POST /api/routes": Body({"topic": TOPIC, "source_table": TABLE, "operations": ["insert"]}),
    "DELETE /api/routes": Body(query={"topic": TOPIC, "source_table": TABLE}),
    "POST /api/pipelines/{name}/lease": Body({"owner": "me"}),
    "POST /api/pipelines/{name}/release": Body(_EPOCH),
    "POST /api/pipelines/{name}/pin": Body({**_EPOCH, "starts": {}}),
    "PUT /api/pipelines/{name}/stages/{stage}/{part}": Body(b""),
    "POST /api/pipelines/{name}/publish": Body({**_EPOCH, "stages": []}),
    "POST /api/pipelines/{name}/write": Body({"stages": [], "source": "s", "number": 1}),
    "POST /api/pipelines/{name}/discard": Body({"stages": []}),
    "POST /api/pipelines/{name}/report": Body({**_EPOCH, "report": {}}),
    "POST /api/pipelines/router/sources": Body(_EPOCH),
    "POST /api/pipelines/router/realtime": Body(_EPOCH),
    "POST /api/batches/offsets": Body({"topics": [TOPIC]}),
    "POST /api/sources/{name}/attach": Body({"owner": "me"}),
    "POST /api/sources/{name}/begin": Body({**_EPOCH, "position": 1, "system_id": "1", "timeline": 1}),
    "POST /api/sources/{name}/tables": Body({**_EPOCH, "table": _CAPTURED}),
    "POST /api/sources/{name}/transactions": Body(b"", {"epoch": "1"}),
    "POST /api/sources/{name}/rows": Body(b"", {"epoch": "1"}),
    "PUT /api/sources/{name}/stages/{stage}/{part}": Body(b""),
    "POST /api/sources/{name}/large": Body({**_EPOCH, "stages": [], "mark": "position", "before": 0, "after": 1}),
    "POST /api/sources/{name}/report": Body(_REPORT),
    "POST /api/sources/{name}/snapshot/want": Body({**_EPOCH, "wanted": []}),
    "POST /api/sources/{name}/snapshot/begin": Body({**_EPOCH, "tables": [], "wanted": []}),
    "POST /api/sources/{name}/snapshot/offer": Body(
        {**_EPOCH, "offer": "o", "snapshot": "s", "lsn": 0, "time_us": 0, "chunks": []}
    ),
    "POST /api/sources/{name}/snapshot/progress": Body({**_EPOCH, "offer": "o", "published": [], "wait_ms": 0}),
    "POST /api/sources/{name}/snapshot/finish": Body({**_EPOCH, "table": 1, "lsn": 0}),
    "POST /api/sources/{name}/snapshot/end": Body(_EPOCH),
    "POST /api/snapshots/claim": Body({"worker": "w", "source": SOURCE}),
    "POST /api/snapshots/staged": Body({"source": SOURCE, "offer": "o", "number": 0, "stage": "s", "parts": 0, "rows": 0}),
    "POST /api/snapshots/failed": Body({"source": SOURCE, "offer": "o", "number": 0, "error": "e"}),
    "POST /api/shadows/{name}/attach": Body({"owner": "me"}),
    "POST /api/shadows/{name}/report": Body(_REPORT),
    "POST /api/shadows/{name}/fence": Body({"owner": "me", "producers": "refuse"}),
    "POST /api/shadows/{name}/unfence": Body({"fence": 1}),
    "POST /api/shadows/{name}/cut-over": Body({"producers": "refuse", "fence": 1}),
    "POST /api/shadows/{name}/roll-back": Body({}),
}
"""Of the endpoints that take one, by method and path."""

_BY_WRITERS = (
    "PUT /api/pipelines/{name}/stages/{stage}/{part}",
    "POST /api/pipelines/{name}/write",
    "POST /api/pipelines/{name}/discard",
)
"""What pipelines without a lease ask for, and nobody has the lease of `job-1`."""


def path_of(endpoint: str) -> str:
    """Return the path of a request to an endpoint."""
    method, _, path = endpoint.partition(" ")
    parts = path.split("/")
    values = {"{group_id}": GROUP, "{stage}": "one", "{part}": "0"}
    # What is there for others is not deleted.
    names = dict.fromkeys(_NAMES, "acme.unused") if method == "DELETE" else _NAMES
    if endpoint in _BY_WRITERS:
        names = {**names, "pipelines": "job-1"}
    return "/".join(names[parts[at - 1]] if part == "{name}" else values.get(part, part) for at, part in enumerate(parts))
