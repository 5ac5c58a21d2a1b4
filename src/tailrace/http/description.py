"""What a handler says about itself for the OpenAPI document, beyond what its signature tells."""

from typing import Any

from tailrace.http.guards import TAKES

BODY = "body"
ANSWER = "answer"
ANSWER_TYPES = "answer_types"


def described(
    body: Any = None, *, answer: Any = None, takes: str | None = None, answer_types: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Options of a handler: the shape of its JSON body, and of its answer where the return type does not tell; several
    shapes if it has more than one.

    `takes`: another type of body than JSON. `answer_types`: other types of answers, each with its shape.
    """
    told = {BODY: body, ANSWER: answer, TAKES: takes, ANSWER_TYPES: answer_types}
    return {name: value for name, value in told.items() if value is not None}
