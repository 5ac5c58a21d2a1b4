"""What may be asked of a queue: the bounds of requests, each refused with an error that names the limit."""

from collections.abc import Sequence

from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.model.queue import ReceiveRequest


def check_receive(asked: ReceiveRequest, limits: Limits) -> None:
    check_group_name(asked.group, limits)
    if not 1 <= asked.max_records <= limits.queue_batch:
        raise LimitExceededError(f"{asked.max_records} records were asked for; queue_batch allows 1 to {limits.queue_batch}")
    if not 0 <= asked.wait_ms <= limits.fetch_wait_ms:
        raise LimitExceededError(f"the wait is {asked.wait_ms} ms; fetch_wait_ms allows up to {limits.fetch_wait_ms}")
    check_time("visibility_ms", asked.visibility_ms, 1, limits)
    if len(asked.owner) > limits.group_name_length:
        raise LimitExceededError(
            f"the consumer's name has {len(asked.owner)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if len(asked.attempt) > limits.group_name_length:
        raise LimitExceededError(
            f"the attempt's name has {len(asked.attempt)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if asked.is_repeated and not asked.attempt:
        raise InvalidRequestError("a receive that is repeated needs the name of its attempt")
    wanted = asked.max_deliveries
    if wanted is not None and not 1 <= wanted <= limits.queue_deliveries:
        raise LimitExceededError(f"max_deliveries is {wanted}; queue_deliveries allows 1 to {limits.queue_deliveries}")


def check_time(name: str, milliseconds: int, least: int, limits: Limits) -> None:
    if not least <= milliseconds <= limits.queue_hold_ms:
        raise LimitExceededError(f"{name} is {milliseconds}; queue_hold_ms allows {least} to {limits.queue_hold_ms}")


def check_receipts(receipts: Sequence[str], limits: Limits) -> None:
    if not 1 <= len(receipts) <= limits.queue_batch:
        raise LimitExceededError(f"{len(receipts)} receipts were sent; queue_batch allows 1 to {limits.queue_batch}")
    if len(set(receipts)) != len(receipts):
        raise InvalidRequestError("a receipt was sent twice in one request; send each once")
