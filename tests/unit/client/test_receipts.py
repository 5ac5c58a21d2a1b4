"""What is said by receipts is gathered by what is said, in order and bounded; and what its refusals mean."""

from tailrace.client.queue_messages import ACK, Refused, nack
from tailrace.client.receipts import MOST_AT_ONCE, ReceiptBox, Saying, error_of_refusals
from tailrace.model.errors import ConnectionLostError, LateReceiptError

UNKNOWN = ConnectionLostError("the connection broke")


def taken(box: ReceiptBox[int]) -> list[int]:
    return [saying.outcome for saying in box.take()]


def test_what_says_the_same_goes_together_and_order_is_kept() -> None:
    box: ReceiptBox[int] = ReceiptBox()
    for number, word in enumerate((ACK, ACK, nack(0, ""), nack(5, ""), nack(5, ""), ACK)):
        box.put(Saying(word, [str(number)], number))
    assert [taken(box) for _ in range(5)] == [[0, 1], [2], [3, 4], [5], []]


def test_a_request_has_only_so_many_receipts() -> None:
    box: ReceiptBox[int] = ReceiptBox()
    for number in range(3):
        box.put(Saying(ACK, ["r"] * (MOST_AT_ONCE // 2), number))
    assert [taken(box) for _ in range(2)] == [[0, 1], [2]]


def test_the_box_is_full_at_some_time_and_has_room_again() -> None:
    box: ReceiptBox[int] = ReceiptBox()
    saying = Saying(ACK, ["r"] * MOST_AT_ONCE, 0)
    while box.has_room(saying):
        box.put(saying)
    held = len(box)
    assert held <= 1_000
    box.take()
    assert box.has_room(saying)


def test_a_refusal_is_late_unless_an_answer_was_lost_and_the_record_is_done() -> None:
    open_again, done = Refused("a", "handed out again"), Refused("b", "done already", is_done=True)
    late = error_of_refusals([open_again, done], None)
    assert isinstance(late, LateReceiptError)
    assert late.refused == [open_again, done]
    assert isinstance(error_of_refusals([open_again], UNKNOWN), LateReceiptError)
    assert error_of_refusals([open_again, done], UNKNOWN) is UNKNOWN
