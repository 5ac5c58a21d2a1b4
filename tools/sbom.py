"""Writes a software bill of materials (CycloneDX 1.6, JSON) from `uv.lock`: every package for Tailrace and its development.

The same lock file gives the same bill, byte for byte. Each package has its version, the address and SHA-256 of each of its
files, and what it needs. `scope` says what it is for: `required` by every server, `optional` for one of the extras, `excluded`
for development only. Only the standard library is used.

    python -m tools.sbom build/sbom.cdx.json
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).resolve().parent.parent
NAME = "tailrace"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)

Package = Mapping[str, Any]


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tools.sbom FILE")
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill_of_materials(ROOT), indent=2) + "\n")


def bill_of_materials(root: Path) -> dict[str, Any]:
    lock = (root / "uv.lock").read_bytes()
    packages: list[Package] = tomllib.loads(lock.decode())["package"]
    own = next(package for package in packages if package["name"] == NAME)
    version = _VERSION.search((root / "src" / NAME / "__init__.py").read_text())
    if version is None:
        raise SystemExit(f"src/{NAME}/__init__.py says no __version__")
    scopes = _scopes(packages, own)
    known = [package for package in packages if package is not own]
    own_reference = f"pkg:pypi/{NAME}@{version[1]}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, sha256(lock).hexdigest() + version[1])}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own_reference,
                "name": NAME,
                "version": version[1],
                "purl": own_reference,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [_component(package, scopes.get(reference(package), "excluded")) for package in known],
        "dependencies": [
            {
                "ref": own_reference if package is own else reference(package),
                "dependsOn": sorted({reference(one) for one in _needed(packages, _all_dependencies(package))}),
            }
            for package in packages
        ],
    }


def reference(package: Package) -> str:
    """Return the package URL of a locked version."""
    return f"pkg:pypi/{package['name']}@{package['version']}"


def _component(package: Package, scope: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
        "scope": scope,
        "externalReferences": [
            {
                "type": "distribution",
                "url": file["url"],
                "hashes": [{"alg": "SHA-256", "content": file["hash"].removeprefix("sha256:")}],
            }
            for file in _files(package)
        ],
    }


def _files(package: Package) -> list[Mapping[str, str]]:
    return [*([package["sdist"]] if "sdist" in package else ()), *package.get("wheels", ())]


def _scopes(packages: list[Package], own: Package) -> dict[str, str]:
    """Return what each package is for that a server may need."""
    scopes: dict[str, str] = {}
    extras = (dependency for group in own.get("optional-dependencies", {}).values() for dependency in group)
    for scope, begin in (("optional", extras), ("required", own["dependencies"])):
        waiting = list(begin)
        while waiting:
            dependency = waiting.pop()
            for package in _needed(packages, [dependency]):
                names = {reference(package), *(f"{reference(package)}[{extra}]" for extra in dependency.get("extra", ()))}
                if any(scopes.get(name) != scope for name in names):
                    scopes.update(dict.fromkeys(names, scope))
                    waiting += package.get("dependencies", ())
                    for extra in dependency.get("extra", ()):
                        waiting += package.get("optional-dependencies", {}).get(extra, ())
    return scopes


def _all_dependencies(package: Package) -> Iterator[Mapping[str, Any]]:
    yield from package.get("dependencies", ())
    for section in ("optional-dependencies", "dev-dependencies"):
        for group in package.get(section, {}).values():
            yield from group


def _needed(packages: list[Package], dependencies: Iterable[Mapping[str, Any]]) -> Iterator[Package]:
    """Yield the locked versions that dependencies may mean: a name can have several, for different Pythons."""
    for dependency in dependencies:
        for package in packages:
            if package["name"] == dependency["name"] and dependency.get("version") in (None, package.get("version")):
                yield package


if __name__ == "__main__":
    main()
