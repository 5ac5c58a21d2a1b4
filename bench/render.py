"""Writes the pages from stored results, without measuring anything: `python -m bench.render`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report.markdown import markdown_page
from bench.report.web import web_page
from bench.results import ResultFolder
from bench.subjects import SUBJECTS

_ROOT = Path(__file__).resolve().parents[1]
_NOTES = Path(__file__).with_name("notes.md")
MARKDOWN, WEB = "benchmarks.md", "benchmarks.html"


def write_pages(results: ResultFolder, folder: Path) -> list[Path]:
    """Write the page of the bars into this folder, and the page of all details beside it, or into `build/` if it is `docs/`."""
    found = results.all(SUBJECTS)
    measured = {result.subject for result in found}
    missing = [name for name, subject in SUBJECTS.items() if name not in measured and not subject.is_extra]
    notes = _NOTES.read_text()
    details = _ROOT / "build" if folder.resolve() == _ROOT / "docs" else folder
    pages = {folder / MARKDOWN: markdown_page(found, missing, notes), details / WEB: web_page(found, missing, notes)}
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(pages)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.render", description="Write the pages of results that are kept.")
    parser.add_argument("--results", type=Path, default=_ROOT / "bench" / "results")
    parser.add_argument("--out", type=Path, default=_ROOT / "docs", help="the folder of the pages")
    options = parser.parse_args(arguments)
    for page in write_pages(ResultFolder(options.results), options.out):
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
