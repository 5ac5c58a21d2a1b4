"""The two lock files pin the same versions, from the public index and nowhere else."""

import re
import tomllib
from typing import Any

from tests.docs.tables import ROOT

LOCKED: list[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text())["package"]


def test_what_pip_installs_is_what_uv_locks() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    locked = {package["name"]: package["version"] for package in LOCKED if "registry" in package["source"]}
    assert pinned == locked


def test_every_package_comes_from_the_public_index_with_its_checksum() -> None:
    files = [
        file for package in LOCKED for file in [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
    ]
    assert {package["source"].get("registry", "https://pypi.org/simple") for package in LOCKED} == {"https://pypi.org/simple"}
    assert {file["url"].split("/")[2] for file in files} == {"files.pythonhosted.org"}
    assert all(file["hash"].startswith("sha256:") for file in files)
