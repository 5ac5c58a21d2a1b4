"""Every API is answered in every version that is offered, with a response that clients can read."""

import pytest

from tailrace.kafka.dispatch import ApiRoute
from tailrace.model.errors import MalformedMessageError, UnanswerableRequestError
from tailrace.wire.message import Api
from tailrace.wire.messages.cluster import API_VERSIONS_API, METADATA_API, ApiVersionsRequest, MetadataRequest
from tailrace.wire.messages.produce import PRODUCE_API, ProduceRequest
from tests.support.aio import on_loop
from tests.support.kafka import CLIENT, frame, read_response, running_asker


@on_loop
async def test_every_offered_version_is_answered() -> None:
    async with running_asker() as asker:
        for route in asker.dispatcher.routes:
            for version in route.versions:
                request = ProduceRequest(acks=-1) if route.api is PRODUCE_API else route.api.request()
                response = await asker.ask(route.api, request, version)
                assert isinstance(response, route.api.response), f"{route.api.name} {version}"
        assert asker.traffic.handler_faults == 0


@on_loop
async def test_what_is_offered_is_what_is_answered() -> None:
    async with running_asker() as asker:
        told = await asker.ask(API_VERSIONS_API, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        offered = {each.api_key: each.max_version for each in told.api_keys}
        assert offered == {route.api.key: route.versions[-1] for route in asker.dispatcher.routes}
        assert [each.api_key for each in told.api_keys] == sorted(offered)


@on_loop
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with running_asker() as asker:
        request = bytearray(frame(API_VERSIONS_API, 0, ApiVersionsRequest()))
        request[2:4] = (99).to_bytes(2)
        reply = asker.dispatcher.dispatch(request, CLIENT)
        assert isinstance(reply, tuple)
        _, response = read_response(API_VERSIONS_API, 0, b"".join(reply)[4:])
        assert response.error_code == 35
        assert {each.api_key for each in response.api_keys} >= {0, 1, 3, 18}


@on_loop
async def test_other_unknown_versions_and_apis_are_not_answered() -> None:
    async with running_asker() as asker:
        for key, version in ((METADATA_API.key, 99), (0, 2), (1, 3), (999, 0), (4, 0)):
            request = frame(METADATA_API, 0, MetadataRequest())
            request[0:4] = key.to_bytes(2) + version.to_bytes(2)
            with pytest.raises(UnanswerableRequestError):
                asker.dispatcher.dispatch(request, CLIENT)


@pytest.mark.parametrize("cut", range(19))
@on_loop
async def test_truncated_requests_are_malformed(cut: int) -> None:
    async with running_asker() as asker:
        whole = frame(METADATA_API, 12, MetadataRequest(topics=None))
        assert cut < len(whole)
        with pytest.raises(MalformedMessageError):
            asker.dispatcher.dispatch(whole[:cut], CLIENT)


@on_loop
async def test_produce_is_offered_from_version_0_so_that_librdkafka_compresses() -> None:
    async with running_asker() as asker:
        told = await asker.ask(API_VERSIONS_API, ApiVersionsRequest(), 0)
        produce = next(each for each in told.api_keys if each.api_key == 0)
        assert produce.min_version == 0


def test_a_route_may_offer_less_than_is_described() -> None:
    api: Api = METADATA_API
    assert ApiRoute(api, lambda call, request: None).versions == range(api.lowest, api.highest + 1)
    assert ApiRoute(api, lambda call, request: None, lowest=4, highest=9).versions == range(4, 10)
