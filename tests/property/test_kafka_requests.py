"""Whatever a client sends, it gets an answer or an error. No request makes a handler fail unexpectedly."""

import asyncio
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.kafka.dispatch import PendingResponse
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits
from tailrace.wire.message import Api
from tests.property.test_messages import messages
from tests.support.aio import TEST_SECONDS
from tests.support.kafka import CLIENT, Asker, answer_of, frame, running_asker
from tools.generate_messages import generated_apis

LIMITS = Limits(fetch_wait_ms=1, partitions=1_000, topics=50)
VERSIONS = [(api, version) for api in generated_apis() for version in range(api.lowest, api.highest + 1)]


async def survive(asker: Asker, request: bytearray) -> None:
    with suppress(TailraceError):
        reply = asker.dispatcher.dispatch(request, CLIENT)
        if isinstance(reply, PendingResponse):
            # A join that waits for other members is not answered.
            await answer_of(reply, 0.05)
    assert asker.traffic.handler_faults == 0


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_valid_requests_with_any_values_find_no_fault(data: st.DataObject) -> None:
    async def run() -> None:
        async with asyncio.timeout(TEST_SECONDS), running_asker(limits=LIMITS) as asker:
            await asker.broker.topics.create("0", 2)
            for _ in range(3):
                api, version = data.draw(st.sampled_from(VERSIONS))
                await survive(asker, frame(api, version, data.draw(messages(api.request, version))))

    asyncio.run(run())


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(VERSIONS), st.data())
def test_broken_requests_find_no_fault(where: tuple[Api, int], data: st.DataObject) -> None:
    async def run() -> None:
        async with asyncio.timeout(TEST_SECONDS), running_asker(limits=LIMITS) as asker:
            api, version = where
            whole = frame(api, version, data.draw(messages(api.request, version)))
            for _ in range(data.draw(st.integers(1, 4))):
                at = data.draw(st.integers(0, len(whole)))
                whole[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
            await survive(asker, whole)

    asyncio.run(run())
