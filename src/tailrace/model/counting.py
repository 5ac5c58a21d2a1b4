"""Numbers of things as people write them."""


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
