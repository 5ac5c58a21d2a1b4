"""A client in a process of its own, asked by lines of JSON: a call goes in, its answer comes out.

A call is `{"verb": ..., "args": {...}}`, bytes as base64. An answer is `{"result": ...}`, `{"refused": code, "message": ...}`
or `{"unsupported": reason}`, where an empty reason stands for that of the contract.
"""

import os
import signal
import subprocess
import threading
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tests.compat.contract import Client, Refused, Unsupported

_ROOT = Path(__file__).resolve().parent.parent.parent


class Call(msgspec.Struct):
    verb: str
    args: dict[str, msgspec.Raw] = {}


class Answer(msgspec.Struct, omit_defaults=True):
    result: msgspec.Raw = msgspec.Raw(b"null")
    refused: int | None = None
    unsupported: str | None = None
    message: str = ""


class ClientProcess:
    """Has the verbs of `Client` as methods. `kill` is what it says."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=_ROOT,
                env={**os.environ, "PYTHONWARNINGS": "ignore", **(environment or {})},
            )
        self._one_call = threading.Lock()

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_") or not hasattr(Client, verb):
            raise AttributeError(verb)
        returned = typing.get_type_hints(getattr(Client, verb))["return"]

        def ask(**args: Any) -> Any:
            answer = self._ask(verb, args)
            return None if returned is type(None) else msgspec.json.decode(answer.result, type=returned)

        return ask

    @property
    def log(self) -> str:
        return self._log.read_text()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _ask(self, verb: str, args: dict[str, Any]) -> Answer:
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None
        assert answering is not None
        with self._one_call:
            with suppress(BrokenPipeError):
                asking.write(msgspec.json.encode({"verb": verb, "args": args}) + b"\n")
                asking.flush()
            line = answering.readline()
        if not line:
            raise AssertionError(f"the client died in {verb}: {self._log.read_text()[-2000:]}")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.unsupported is not None:
            raise Unsupported(answer.unsupported or _why_not(verb, args))
        if answer.refused is not None:
            raise Refused(answer.refused, answer.message)
        return answer


def _why_not(verb: str, args: dict[str, Any]) -> str:
    """What a client that does not have the verb says."""
    try:
        getattr(Client(""), verb)(**args)
    except Unsupported as reason:
        return str(reason)
    return f"it has no {verb}"
