"""InitProducerId: an identity for a producer that wants each record stored once, or writes in transactions."""

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import Call, Route
from tailrace.kafka.handlers.groups import group_error_code
from tailrace.model.errors import ProducerFencedError, TailraceError, TransactionFencedError
from tailrace.model.ids import ProducerId
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.messages import init_producer_id
from tailrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_LAST_WITHOUT_PREPARING = 5
"""Later versions are for transactions that somebody else coordinates."""
_FENCED_SINCE = 4
_NO_PRODUCER = -1


class ProducerHandlers:
    def __init__(self, broker: Broker) -> None:
        self._producers = broker.producers
        self._transactions = broker.transactions

    def routes(self) -> list[Route]:
        return [Route(init_producer_id.API, self.init, highest=_LAST_WITHOUT_PREPARING)]

    async def init(self, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await self._producers.allocate())
        expected = None
        if request.producer_id != _NO_PRODUCER:
            expected = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)
        try:
            producer_id, epoch = await self._transactions.init_producer(
                request.transactional_id, request.transaction_timeout_ms, expected
            )
        except TransactionFencedError as error:
            code = error.kafka_code if call.version >= _FENCED_SINCE else ProducerFencedError.kafka_code
            return InitProducerIdResponse(error_code=code)
        except TailraceError as error:
            return InitProducerIdResponse(error_code=group_error_code(error))
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
