"""A terminal of 80 columns with somebody at it: types, and reads what is on the screen."""

import time
from collections.abc import Callable, Mapping, Sequence

import pexpect
import pyte

from tests.support.patience import PATIENCE_SECONDS

ENTER, TAB, UP, CTRL_C, CTRL_D = "\r", "\t", "\x1b[A", "\x03", "\x04"
COLUMNS, LINES = 80, 50


class Terminal:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._screen = pyte.HistoryScreen(COLUMNS, LINES, history=1_000)
        self._stream = pyte.ByteStream(self._screen)
        self._process = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={**environment, "TERM": "xterm-256color"},
            dimensions=(LINES, COLUMNS),
            timeout=None,
        )
        # The prompt asks the terminal where the cursor is.
        self._screen.write_process_input = self._process.send  # type: ignore[method-assign]

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close(force=True)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def type(self, text: str) -> None:
        self._process.send(text)

    def wait_for(self, text: str, times: int = 1) -> str:
        """The screen, as soon as this is on it."""
        return self.wait_until(lambda screen: screen.count(text) >= times, text)

    def wait_for_prompt(self, prompt: str = "tailrace>") -> str:
        """The screen, as soon as the last line is an empty prompt."""
        return self.wait_until(lambda screen: screen.endswith(f"\n{prompt}"), prompt)

    def wait_until(self, holds: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(self.text):
            assert time.monotonic() < deadline, f"{what!r} never came; the screen:\n{self.text}"
            self._read()
        return self.text

    def end(self) -> int:
        """The exit code of the command, which ends by itself."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._process.isalive():
            assert time.monotonic() < deadline, f"it never ended; the screen:\n{self.text}"
            self._read()
        self._read()
        return int(self._process.wait() if self._process.exitstatus is None else self._process.exitstatus)

    def _read(self) -> None:
        try:
            self._stream.feed(self._process.read_nonblocking(65_536, timeout=0.05))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            time.sleep(0.01)
