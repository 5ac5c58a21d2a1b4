"""Answers calls on standard input by an adapter written in Python: `python -m tests.compat.serve_client MODULE BOOTSTRAP`.

With `version` for the address it only says which version the client has.
"""

import importlib
import os
import sys
import typing
from typing import Any

import msgspec

from tests.compat.contract import Client, Unsupported
from tests.compat.process import Answer, Call


def main() -> None:
    module, bootstrap = sys.argv[1:]
    kind: type[Client] = importlib.import_module(f"tests.compat.clients.{module}").Adapter
    if bootstrap == "version":
        print(kind.version())
        return
    answers = os.fdopen(os.dup(1), "wb")
    # What a client prints must not end up between the answers.
    os.dup2(2, 1)
    adapter = kind(bootstrap)
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(_answer(adapter, msgspec.json.decode(line, type=Call))) + b"\n")
        answers.flush()
    os._exit(0)


def _answer(adapter: Client, call: Call) -> Answer:
    kinds = typing.get_type_hints(getattr(Client, call.verb))
    args: dict[str, Any] = {name: msgspec.json.decode(raw, type=kinds[name]) for name, raw in call.args.items()}
    try:
        return Answer(result=msgspec.Raw(msgspec.json.encode(getattr(adapter, call.verb)(**args))))
    except Unsupported as reason:
        return Answer(unsupported=str(reason))
    except Exception as error:  # noqa: BLE001
        return Answer(refused=adapter.code_of(error), message=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
