"""Checks that stay on in production. `assert` vanishes under `python -O`; these do not."""


class InvariantError(RuntimeError):
    """The program contradicts itself. Nothing is safe to do but to stop."""


def invariant(condition: object, message: str) -> None:
    if not condition:
        raise InvariantError(message)
