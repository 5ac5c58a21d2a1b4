"""The endpoints of shadows, as the processes that copy and the commands that cut over call them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from tailrace.api.shadows import AttachShadowResponse, FenceResponse, ShadowStatusResponse
from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.shadow import ShadowPartition, ShadowReport
from tests.support.aio import on_loop
from tests.support.brokers import append, raw, running_broker
from tests.support.shadows import created

CLOCK = SystemClock()


class Api:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def post(self, path: str, **body: Any) -> httpx.Response:
        content = msgspec.json.encode(body)
        return await self._http.post(f"/api/{path}", content=content, headers={"content-type": "application/json"})

    async def get(self, path: str) -> httpx.Response:
        return await self._http.get(f"/api/{path}")


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Broker, Api]]:
    async with running_broker(clock=CLOCK) as broker:
        status = ServerStatus("fsync", CLOCK, lambda: None, "kafka.here:9092")
        app = create_app(broker, status, DEFAULT_LIMITS, on_loopback=True)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            await broker.topics.create("app.a", 2)
            await created(broker)
            yield broker, Api(http)


def decoded(response: httpx.Response, kind: type[Any]) -> Any:
    assert response.status_code == 200, response.text
    return msgspec.json.decode(response.content, type=kind)


@on_loop
async def test_a_process_attaches_and_reports() -> None:
    async with running() as (broker, api):
        attached = decoded(await api.post("shadows/prod/attach", owner="copier"), AttachShadowResponse)
        assert (attached.shadow.name, attached.kafka, attached.cluster_id) == ("prod", "kafka.here:9092", broker.cluster_id)
        partition = ShadowPartition("app.a", 0, 3, 5, 103, broker.topics.get("app.a").topic.kafka_id)
        reported = ShadowReport(state="live", records=3, partitions=(partition,), error="none")
        answer = await api.post(
            "shadows/prod/report", epoch=attached.epoch, owner="copier", report=msgspec.to_builtins(reported)
        )
        assert answer.json()["shadow"]["name"] == "prod"
        (listed,) = (await api.get("shadows")).json()
        assert (listed["name"], listed["state"], listed["lag"], listed["owner"]) == ("prod", "live", 2, "copier")
        details = (await api.get("shadows/prod")).json()
        assert details["partitions"] == [
            {"topic": "app.a", "partition": 0, "position": 3, "end": 5, "start": 0, "target_end": 103}
        ]
        asked = decoded(await api.get("shadows/prod/status"), ShadowStatusResponse)
        assert (asked.status.report, asked.kafka) == (reported, "kafka.here:9092")
        await api.post("shadows/prod/attach", owner="another")
        refused = await api.post("shadows/prod/report", epoch=attached.epoch, owner="copier", report={})
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:tailrace:error:shadow-fenced")
        assert (await api.get("shadows/nowhere")).status_code == 404


@on_loop
async def test_a_command_rehearses_fences_renews_and_cuts_over() -> None:
    async with running() as (broker, api):
        now = CLOCK.now_ms()
        await append(broker, raw("app.a", 0, b"a", b"b", timestamp=now))
        asked = {"owner": "me", "producers": "refuse"}
        rehearsed = decoded(await api.post("shadows/prod/fence", **asked, is_rehearsal=True), FenceResponse)
        assert (rehearsed.fence, broker.shadows.get("prod").phase) == (0, "copying")
        fence = decoded(await api.post("shadows/prod/fence", **asked), FenceResponse)
        assert [(one.topic, one.partition, one.start, one.end) for one in fence.partitions] == [
            ("app.a", 0, 0, 2),
            ("app.a", 1, 0, 0),
        ]
        assert {one.topic_id for one in fence.partitions} == {broker.topics.get("app.a").topic.kafka_id}
        assert (fence.fence, fence.open_transactions, fence.open_writes) == (1, 0, 0)
        assert fence.silence_seconds == 30
        assert 590 <= fence.seconds_left <= 600
        other = await api.post("shadows/prod/fence", owner="you", producers="refuse")
        assert (other.status_code, "under way, by me" in other.text) == (409, True)
        assert decoded(await api.post("shadows/prod/fence", **asked, fence=1), FenceResponse).fence == 1
        publish = {"messages": [{"topic": "app.a", "value": 1}]}
        for path in ("topics/publish", "topics/publish/"):
            waiting = await api.post(path, **publish)
            assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
            assert (waiting.json()["retriable"], waiting.json()["outcome"]) == (True, "failed")
        done = await api.post("shadows/prod/cut-over", fence=1, producers="refuse")
        assert done.json()["shadow"]["phase"] == "cut over"
        refused = await api.post("topics/publish", **publish)
        assert (refused.status_code, "retry-after" in refused.headers) == (409, False)
        assert "cut over to the Kafka at kafka-1:9092" in refused.json()["detail"]
        back = await api.post("shadows/prod/roll-back", note="back")
        assert "phase" not in back.json()["shadow"]
        assert (await api.post("topics/publish", **publish)).status_code == 200


@on_loop
async def test_a_command_gives_up() -> None:
    async with running() as (broker, api):
        await api.post("shadows/prod/fence", owner="me", producers="refuse")
        given_up = await api.post("shadows/prod/unfence", fence=1, note="it was too slow")
        assert given_up.json()["shadow"]["note"] == "it was too slow"
        assert (await api.get("shadows")).json()[0]["notes"] == ["it was too slow"]
        late = await api.post("shadows/prod/cut-over", fence=1, producers="refuse")
        assert (late.status_code, late.json()["type"]) == (409, "urn:tailrace:error:shadow-phase")
        assert "has ended: it was too slow" in late.json()["detail"]
        assert broker.shadows.get("prod").phase == "copying"
