"""Pending acks are batched by command, in order and bounded; rejected receipts become errors."""

from tailrace.client.ack_buffer import ACK, MAX_RECEIPTS, AckBuffer, PendingAck, nack_command, refusal_error
from tailrace.model.errors import ConnectionLostError, LateReceiptError
from tailrace.model.queue import RejectedReceipt

UNKNOWN = ConnectionLostError("the connection broke")


def taken(buffer: AckBuffer[int]) -> list[int]:
    return [ack.outcome for ack in buffer.take()]


def test_what_says_the_same_goes_together_and_order_is_kept() -> None:
    buffer: AckBuffer[int] = AckBuffer()
    for number, word in enumerate((ACK, ACK, nack_command(0, ""), nack_command(5, ""), nack_command(5, ""), ACK)):
        buffer.put(PendingAck(word, [str(number)], number))
    assert [taken(buffer) for _ in range(5)] == [[0, 1], [2], [3, 4], [5], []]


def test_a_request_has_only_so_many_receipts() -> None:
    buffer: AckBuffer[int] = AckBuffer()
    for number in range(3):
        buffer.put(PendingAck(ACK, ["r"] * (MAX_RECEIPTS // 2), number))
    assert [taken(buffer) for _ in range(2)] == [[0, 1], [2]]


def test_the_box_is_full_at_some_time_and_has_room_again() -> None:
    buffer: AckBuffer[int] = AckBuffer()
    ack = PendingAck(ACK, ["r"] * MAX_RECEIPTS, 0)
    while buffer.has_room(ack):
        buffer.put(ack)
    held = len(buffer)
    assert held <= 1_000
    buffer.take()
    assert buffer.has_room(ack)


def test_a_rejection_is_late_unless_an_answer_was_lost_and_the_record_is_done() -> None:
    open_again, done = RejectedReceipt("a", "handed out again"), RejectedReceipt("b", "done already", is_done=True)
    late = refusal_error([open_again, done], None)
    assert isinstance(late, LateReceiptError)
    assert late.refused == [open_again, done]
    assert isinstance(refusal_error([open_again], UNKNOWN), LateReceiptError)
    assert refusal_error([open_again, done], UNKNOWN) is UNKNOWN
