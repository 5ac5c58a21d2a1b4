"""The page that is published is what the results say."""

from pathlib import Path

import pytest

from bench.render import MARKDOWN, write_pages
from bench.results import ResultFolder
from bench.run import FULL_RESULTS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.skipif(not FULL_RESULTS.exists(), reason="no full run is kept yet")
def test_the_published_page_is_written_from_the_results(tmp_path: Path) -> None:
    write_pages(ResultFolder(FULL_RESULTS), tmp_path)

    assert (DOCS / MARKDOWN).read_text() == (tmp_path / MARKDOWN).read_text(), "run: python -m bench.render"
