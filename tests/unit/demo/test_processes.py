"""The processes of the demo."""

from pathlib import Path

import pytest

from demo.server import Pipeline


def test_a_demo_that_fails_leaves_no_pipeline_behind(tmp_path: Path) -> None:
    with pytest.raises(LookupError), Pipeline("http://127.0.0.1:9", tmp_path / "pipeline.log") as pipeline:
        pipeline.check()
        raise LookupError("as when nothing was routed in time")
    with pytest.raises(SystemExit, match="the pipeline ended"):
        pipeline.check()
