"""InitProducerId: an identity for a producer that wants each record stored once."""

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import Call, Route
from tailrace.model.errors import InvalidRequestError
from tailrace.wire.messages import init_producer_id
from tailrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class ProducerHandlers:
    def __init__(self, broker: Broker) -> None:
        self._producers = broker.producers

    def routes(self) -> list[Route]:
        return [Route(init_producer_id.API, self.init)]

    async def init(self, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            raise InvalidRequestError("transactions are not taken yet")
        return InitProducerIdResponse(producer_id=await self._producers.allocate())
