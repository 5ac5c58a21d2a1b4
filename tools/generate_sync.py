"""Generates `client/_sync` from `client/_async`: the same code without asyncio.

It removes `async` and `await`, drops `Async` from names, and points imports to `_sync`. The few files that differ in more than
that are written by hand in both folders.

    python -m tools.generate_sync           write the files
    python -m tools.generate_sync --check   fail if they are out of date
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "tailrace" / "client"
BY_HAND = frozenset(("__init__.py", "concurrency.py", "connection.py"))

_NOTICE = "# Generated from _async/{name} by tools/generate_sync.py; change that file, then run it.\n\n"
_REPLACED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
        (r"  # noqa: ASYNC\d+", ""),
        (r"\bimport Awaitable, ", "import "),
        (r"\bAwaitable\[(\w+)\]", r"\1"),
        (r"\bAsync([A-Z]\w*)", r"\1"),
        (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
        (r"\baclose\b", "close"),
        (r"\ba(read|iter_raw)\b", r"\1"),
        (r"\basynccontextmanager\b", "contextmanager"),
        (r"\benter_async_context\b", "enter_context"),
        (r"\b_async\b", "_sync"),
    )
]


def to_sync(source: str) -> str:
    for pattern, replacement in _REPLACED:
        source = pattern.sub(replacement, source)
    return source


def generate(folder: Path) -> None:
    """Write all generated files into this folder, formatted by ruff."""
    for source in sorted((CLIENT / "_async").glob("*.py")):
        if source.name not in BY_HAND:
            (folder / source.name).write_text(_NOTICE.format(name=source.name) + to_sync(source.read_text()))
    written = [str(file) for file in sorted(folder.glob("*.py")) if file.name not in BY_HAND]
    ruff = [sys.executable, "-m", "ruff"]
    configured = ["--config", str(CLIENT.parents[2] / "pyproject.toml"), "--quiet"]
    subprocess.run([*ruff, "check", "--fix", "--select", "I", *configured, *written], check=True)
    subprocess.run([*ruff, "format", *configured, *written], check=True)


def stale_files() -> list[str]:
    """Return the names of generated files that are out of date."""
    target = CLIENT / "_sync"
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {file.name: file.read_text() for file in Path(folder).glob("*.py")}
    there = {file.name: file.read_text() for file in target.glob("*.py") if file.name not in BY_HAND}
    return sorted(name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name))


def main() -> int:
    if "--check" not in sys.argv[1:]:
        generate(CLIENT / "_sync")
        return 0
    stale = stale_files()
    if stale:
        sys.stderr.write(f"client/_sync is stale ({', '.join(stale)}); run: python -m tools.generate_sync\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
