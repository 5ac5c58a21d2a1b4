"""A running server behaves as its OpenAPI document says."""

import subprocess
import sys

import httpx
import pytest

from tests.support.patience import PATIENCE_SECONDS

SECONDS = 280
EXAMPLES = "8"
SEED = "20260128"


@pytest.mark.timeout(300)
def test_the_server_does_what_its_document_says(url: str) -> None:
    """A request that fits the schemas may be rejected, because they can't express all rules. Endless streams are
    skipped, and so are bodies that are no JSON.
    """
    tried = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/openapi.json", "--no-color"),
            *("--seed", SEED, "--max-examples", EXAMPLES, "--generation-database", "none"),
            *("--exclude-path", "/api/subscribe", "--exclude-path", "/api/tables/{name}/rows"),
            *("--exclude-checks", "positive_data_acceptance"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "tailrace_unexpected_errors_total 0.0" in httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text


def test_the_document_holds_every_endpoint_but_those_that_pipelines_use(url: str) -> None:
    document = httpx.get(f"{url}/api/openapi.json", timeout=PATIENCE_SECONDS).json()
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {
        "/",
        "/health",
        "/metrics",
        "/api/openapi.json",
        "/api/login",
        "/api/logout",
        "/api/whoami",
        "/api/sql",
        "/api/subscribe",
        "/api/tables",
        "/api/tables/{name}/rows",
        "/api/views",
        "/api/routes",
        "/api/sources",
        "/api/shadows",
        "/api/shadows/{name}",
        "/api/pipelines",
        "/api/topics",
        "/api/topics/{name}",
        "/api/topics/{name}/partitions",
        "/api/topics/publish",
        "/api/topics/consume",
        "/api/topics/ack",
        "/api/topics/commit",
        "/api/groups",
        "/api/groups/{group_id}",
        "/api/groups/{group_id}/offsets",
        "/api/topics/fetch",
        "/api/groups/{group_id}/join",
        "/api/groups/{group_id}/sync",
        "/api/groups/{group_id}/heartbeat",
        "/api/groups/{group_id}/leave",
        "/api/groups/{group_id}/begin",
        "/api/groups/{group_id}/commit",
        "/api/queues",
        "/api/queues/{group_id}",
        "/api/queues/{group_id}/receive",
        "/api/queues/{group_id}/ack",
        "/api/queues/{group_id}/nack",
        "/api/queues/{group_id}/extend",
    }
    described = [operation for path in document["paths"].values() for operation in path.values()]
    assert [operation["operationId"] for operation in described if not operation["summary"]] == []
    assert len({operation["operationId"] for operation in described}) == len(described)
