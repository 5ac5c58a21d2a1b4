"""The software bill of materials has every locked package, and is one by CycloneDX's description."""

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

import tailrace
from tests.docs.tables import ROOT
from tools.sbom import bill_of_materials

PACKAGE_URL = re.compile(r"pkg:pypi/[a-z0-9._-]+@[a-zA-Z0-9.+!-]+")


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("sbom") / "build" / "sbom.json"
    subprocess.run([sys.executable, "-m", "tools.sbom", str(target)], check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def test_it_has_every_package_that_pip_installs_with_version_and_the_hashes_of_its_files(bill: dict[str, Any]) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {
        (name, version): set(re.findall(r"--hash=sha256:([0-9a-f]{64})", rest))
        for name, version, rest in re.findall(r"^([\w.-]+)==([^ ;\\]+)(.*?)(?=^[\w-]|\Z)", lock, re.MULTILINE | re.DOTALL)
    }
    there = {
        (one["name"], one["version"]): {each["content"] for file in one["externalReferences"] for each in file["hashes"]}
        for one in bill["components"]
    }
    assert len(there) == len(bill["components"]) > 50
    assert there.keys() == {
        (package["name"], package["version"])
        for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
        if package["name"] != "tailrace"
    }
    assert all(there.values())
    assert all(hashes <= there[package] for package, hashes in pinned.items() if package in there)
    assert Counter(name for name, _ in pinned) - Counter(name for name, _ in there) == Counter()


def test_it_has_the_fields_that_cyclonedx_requires(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert UUID(bill["serialNumber"].removeprefix("urn:uuid:"))
    own = bill["metadata"]["component"]
    assert (own["type"], own["name"], own["version"]) == ("application", "tailrace", tailrace.__version__)
    for component in (own, *bill["components"]):
        assert component["type"] in {"application", "library"}
        assert component["name"]
        assert PACKAGE_URL.fullmatch(component["purl"])
        assert component["bom-ref"] == component["purl"]
    for component in bill["components"]:
        assert component["scope"] in {"required", "optional", "excluded"}
        for file in component["externalReferences"]:
            assert file["type"] == "distribution"
            assert urlsplit(file["url"]).scheme == "https"
            assert [each["alg"] for each in file["hashes"]] == ["SHA-256"]
            assert re.fullmatch("[0-9a-f]{64}", file["hashes"][0]["content"])


def test_references_are_unique_and_dependencies_name_what_is_there(bill: dict[str, Any]) -> None:
    references = [bill["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in bill["components"])]
    assert len(set(references)) == len(references)
    assert sorted(one["ref"] for one in bill["dependencies"]) == sorted(references)
    assert {name for one in bill["dependencies"] for name in one["dependsOn"]} <= set(references)


def test_the_scope_says_what_a_package_is_for(bill: dict[str, Any]) -> None:
    scopes = {one["name"]: one["scope"] for one in bill["components"]}
    assert {scopes[name] for name in ("msgspec", "httpx", "anyio", "certifi", "llvmlite")} == {"required"}
    assert {scopes[name] for name in ("pyspark", "py4j", "psycopg")} == {"optional"}
    assert {scopes[name] for name in ("pytest", "ruff", "aiokafka")} == {"excluded"}


def test_the_same_lock_file_gives_the_same_bill(bill: dict[str, Any]) -> None:
    assert bill_of_materials(ROOT) == bill
