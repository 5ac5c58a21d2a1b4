"""Archives for Spark's workers: what they are made of, and which ones are refused."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tailrace
from tailrace.pipeline.daemon import ARCHIVE_MANIFEST, this_interpreter
from tailrace.pipeline.errors import SparkError
from tailrace.pipeline.session import worker_failure
from tailrace.pipeline.worker_archive import archive_uri, make_archive


def archive_of(folder: Path, manifest: object, name: str = ARCHIVE_MANIFEST) -> Path:
    path = folder / "env.tar.gz"
    (folder / name).write_text(json.dumps(manifest))
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder / name, name)
    return path


def manifest(**changed: str) -> dict[str, str]:
    return {"tailrace": tailrace.__version__, "interpreter": this_interpreter(), **changed}


def test_an_archive_is_unpacked_under_the_name_that_workers_look_for(tmp_path: Path) -> None:
    path = archive_of(tmp_path, manifest())
    assert archive_uri(str(path)) == f"{path}#tailrace"
    assert archive_uri(f"{path}#tailrace") == f"{path}#tailrace"
    assert archive_uri("hdfs://nn/env.tar.gz") == "hdfs://nn/env.tar.gz#tailrace"


def test_an_archive_of_another_version_or_python_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"is an archive of tailrace 0\.0\.0 on Python .*, and this is tailrace"):
        archive_uri(str(archive_of(tmp_path, manifest(tailrace="0.0.0"))))
    with pytest.raises(SparkError, match=r"on Python 3\.99 .* Make one with: tailrace pipeline package"):
        archive_uri(str(archive_of(tmp_path, manifest(interpreter="Python 3.99 for Linux x86_64"))))


def test_what_is_no_archive_of_ours_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="was not made by tailrace pipeline package"):
        archive_uri(str(archive_of(tmp_path, {}, "something.json")))
    (tmp_path / "text.tar.gz").write_text("text")
    with pytest.raises(SparkError, match="is not an archive"):
        archive_uri(str(tmp_path / "text.tar.gz"))
    with pytest.raises(SparkError, match="can't read the archive /nowhere: No such file"):
        archive_uri("/nowhere")
    with pytest.raises(SparkError, match="unpacks as 'other'; leave that out"):
        archive_uri(f"{archive_of(tmp_path, manifest())}#other")


def test_an_archive_that_is_cut_off_is_rejected(tmp_path: Path) -> None:
    path = archive_of(tmp_path, manifest())
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SparkError, match="Make one with"):
        archive_uri(str(path))


def test_a_place_that_spark_can_not_unpack_or_that_is_missing_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=re.escape("env.zip does not end with .tar.gz or .tgz")):
        make_archive(tmp_path / "env.zip")
    with pytest.raises(SparkError, match="there is no folder"):
        make_archive(tmp_path / "missing" / "env.tar.gz")


def test_a_worker_of_another_interpreter_says_so_before_it_imports_anything(tmp_path: Path) -> None:
    sources = Path(tailrace.__file__).parent
    for name in ("__init__.py", "pipeline/__init__.py", "pipeline/daemon.py"):
        (tmp_path / "tailrace" / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(sources / name, tmp_path / "tailrace" / name)
    (tmp_path / ARCHIVE_MANIFEST).write_text(json.dumps(manifest(interpreter="Python 3.99 for Plan9 mips")))
    command = [sys.executable, "-S", "-m", "tailrace.pipeline.daemon"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    failure = str(worker_failure(RuntimeError(f"Error from python worker:\n  {done.stderr}PYTHONPATH was: /x"), "python3"))
    assert failure.startswith(
        f"{sys.executable}, the Python of Spark's workers, is {this_interpreter()}, and the archive is for"
    )
