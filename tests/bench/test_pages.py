"""The pages that are published are what the results say."""

from pathlib import Path

import pytest

from bench.render import MARKDOWN, WEB, write_pages
from bench.results import ResultFolder
from bench.run import FULL_RESULTS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.skipif(not FULL_RESULTS.exists(), reason="no full run is kept yet")
@pytest.mark.parametrize("page", [MARKDOWN, WEB])
def test_the_published_pages_are_written_from_the_results(page: str, tmp_path: Path) -> None:
    write_pages(ResultFolder(FULL_RESULTS), tmp_path)

    assert (DOCS / page).read_text() == (tmp_path / page).read_text(), "run: python -m bench.render"
