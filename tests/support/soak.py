"""Clients in processes of their own, killed and started again, and everything that they have said."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent.parent
_NUMBERS_A_LIFE = 1_000_000
_END_SECONDS = 90.0

Said = list[Any]


class SoakClient:
    """One role, in as many lives as it takes."""

    def __init__(self, role: str, url: str, folder: Path, number: int = 0) -> None:
        self.role = role
        self._url = url
        self._file = folder / f"{role}-{number}.jsonl"
        self._errors = folder / f"{role}-{number}.errors"
        self._file.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0

    def start(self) -> None:
        with self._file.open("ab") as out, self._errors.open("ab") as errors:
            command = [sys.executable, "-m", "tests.support.soak_worker", self.role, self._url, str(self._first())]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors, cwd=_ROOT)
        self.lives += 1

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def end(self) -> None:
        """Let it come to its end, with whatever it does then."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        assert code == 0, f"a {self.role} ended with code {code}: {self._errors.read_text()[-2000:]}"

    def check_alive(self) -> None:
        assert self._process is None or self._process.poll() is None, (
            f"a {self.role} ended by itself: {self._errors.read_text()[-2000:]}"
        )

    def said(self, *words: str) -> Iterator[Said]:
        """What it has said, without the word; of a line that a kill cut off there is nothing."""
        for line in self._file.read_bytes().splitlines():
            try:
                word, *rest = json.loads(line)
            except ValueError:
                continue
            if word in words:
                yield rest

    def _first(self) -> int:
        if self.role == "follower":
            return max((cursor for cursor, _, _ in self.said("followed")), default=-1)
        return self.lives * _NUMBERS_A_LIFE + 1
