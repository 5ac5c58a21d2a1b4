"""The archive that brings our package to Spark's workers, made by `tailrace pipeline package`.

Spark unpacks it into the folder that each executor runs in, and the workers' own Python finds the packages there by PYTHONPATH.
So a worker needs nothing but a Python of the driver's version. The archive has what tasks and the driver of the router import:
our package, and the installed distributions that it needs, without their tests and headers. It has psycopg if that is installed
here, with which tasks read snapshots of captured tables. It does not have PySpark, which every Spark brings, nor an
interpreter, whose libraries are those of the machine that it was built for.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import tailrace
from tailrace.pipeline.daemon import ARCHIVE_MANIFEST, SNAPSHOT_CHUNKS, this_interpreter
from tailrace.pipeline.errors import SparkError

FOLDER = "tailrace"
"""What executors unpack the archive as."""
DEFAULT_NAME = "tailrace-env.tar.gz"
_REQUIRED = ("cramjam", "crc32c", "httptools", "msgspec", "numba", "numpy", "pgparse", "pyarrow", "typer")
"""What tasks and the driver of a router import themselves. Trying the archive out shows that the list is complete."""
_PSYCOPG = "psycopg"
_OPTIONAL = (_PSYCOPG, "psycopg-binary")
"""What tasks import if it is there. The second one has psycopg's libpq."""
_OUR_PACKAGES = ("tailrace", "pyspark_tailrace")
_LEFT_OUT_FOLDERS = frozenset(("tests", "include", "__pycache__"))
_LEFT_OUT_LIBRARIES = ("libarrow_flight", "libarrow_python_flight", "libarrow_s3", "_flight", "_s3fs")
"""Parts of Arrow that work without each other and that nothing here uses: an eighth of the archive."""
_LEFT_OUT_SUFFIXES = (".h", ".hpp", ".pxd", ".pyx", ".pyi", ".c", ".cpp")
_TRIED_MODULES = ("tailrace.cli.commands", "tailrace.pipeline.router", "pyspark_tailrace")
_TRY_SECONDS = 300
_COMPRESSION_LEVEL = 3
"""A third of the time of the usual 6, and 6 % larger."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")
_HOW_TO_MAKE = "Make one with: tailrace pipeline package"


class MadeArchive(NamedTuple):
    path: Path
    size: int
    interpreter: str


def make_archive(output: Path, on_progress: Callable[[str], None] = lambda _: None) -> MadeArchive:
    """Make the archive and try it out. A file of that name is replaced when the new one is complete."""
    if not output.name.endswith((".tar.gz", ".tgz")):
        raise SparkError(f"{output} does not end with .tar.gz or .tgz, by which Spark knows how to unpack it")
    if not output.parent.is_dir():
        raise SparkError(f"there is no folder {output.parent} for the archive. Create it, or choose another --output")
    distributions = _with_requirements((*_REQUIRED, *_OPTIONAL))
    names = [f"{each.name} {each.version}" for each in distributions]
    with tempfile.TemporaryDirectory(prefix=".tailrace-package-", dir=output.parent) as folder:
        tree, packed = Path(folder, "tree"), Path(folder, "packed")
        on_progress(f"copying tailrace {tailrace.__version__}, {', '.join(names)}")
        for distribution in distributions:
            _copy_distribution(distribution, tree)
        for name in _OUR_PACKAGES:
            _copy_package(name, tree)
        (tree / ARCHIVE_MANIFEST).write_text(json.dumps(_manifest()))
        on_progress("trying it out and compiling its loops, with nothing else to import")
        has_psycopg = any(each.name == _PSYCOPG for each in distributions)
        _try_out(tree, (*_TRIED_MODULES, SNAPSHOT_CHUNKS) if has_psycopg else _TRIED_MODULES)
        on_progress("compressing it")
        _pack(tree, packed)
        packed.replace(output)
    return MadeArchive(output, output.stat().st_size, this_interpreter())


def archive_uri(archive: str) -> str:
    """Return a value of `spark.archives` for an archive: a path or URI, with the name of the folder behind it or without.

    A file of this machine is checked: it must be one of this version, for this Python.
    """
    place, _, folder = archive.partition("#")
    if folder not in ("", FOLDER):
        raise SparkError(f"--archives {archive} unpacks as {folder!r}; leave that out, it must be {FOLDER!r}")
    if "://" in place:
        return f"{place}#{FOLDER}"
    path = Path(place).absolute()
    manifest = _read_manifest(path)
    expected = _manifest()
    if manifest != expected:
        was, now = (f"tailrace {each.get('tailrace')} on {each.get('interpreter')}" for each in (manifest, expected))
        raise SparkError(f"{path} is an archive of {was}, and this is {now}. {_HOW_TO_MAKE}")
    return f"{path}#{FOLDER}"


def _manifest() -> dict[str, str]:
    return {"tailrace": tailrace.__version__, "interpreter": this_interpreter()}


def _read_manifest(path: Path) -> dict[str, str]:
    try:
        with tarfile.open(path, "r:*") as archive:
            # It is the first member, so that nothing else has to be decompressed.
            member = archive.next()
            found = None if member is None or member.name != ARCHIVE_MANIFEST else archive.extractfile(member)
            manifest = None if found is None else json.loads(found.read())
    except OSError as error:
        raise SparkError(f"can't read the archive {path}: {error.strerror or error}. {_HOW_TO_MAKE}") from None
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise SparkError(f"{path} is not an archive: {error}. {_HOW_TO_MAKE}") from None
    if not isinstance(manifest, dict):
        raise SparkError(f"{path} was not made by tailrace pipeline package. {_HOW_TO_MAKE}")
    return manifest


def _with_requirements(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """Return installed distributions and all that they require, by name. What is not installed was not required here."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in _REQUIRED:
                raise SparkError(
                    f"{name} is not installed here. Install tailrace again: pip install 'tailrace[spark]'"
                ) from None
            continue
        for requirement in distribution.requires or ():
            named = _REQUIREMENT.match(requirement)
            if named is not None and "extra ==" not in requirement:
                waiting.append(named[0])
    return [found[name] for name in sorted(found)]


def _copy_distribution(distribution: importlib.metadata.Distribution, tree: Path) -> None:
    files = distribution.files
    if not files:
        raise SparkError(
            f"can't tell which files belong to {distribution.name}, because it was not installed by pip. Install"
            " tailrace[spark] by pip into an environment of its own (python -m venv), and make the archive there"
        )
    for file in files:
        # Commands lie outside of the folder of packages.
        if ".." not in file.parts and _is_needed(file.parts):
            _copy(Path(str(file.locate())), tree / file)


def _copy_package(name: str, tree: Path) -> None:
    """Copy a package from where it is imported, which also works for an editable installation."""
    specification = importlib.util.find_spec(name)
    if specification is None or specification.origin is None:
        raise SparkError(f"the package {name} is not installed here. Install tailrace again: pip install 'tailrace[spark]'")
    folder = Path(specification.origin).parent
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        # Loops that were compiled here need not be compiled again, here or on machines with the same processor.
        if path.is_file() and (_is_needed(parts) or path.suffix in (".nbi", ".nbc")):
            _copy(path, tree.joinpath(name, *parts))


def _is_needed(parts: tuple[str, ...]) -> bool:
    name = parts[-1]
    return (
        _LEFT_OUT_FOLDERS.isdisjoint(parts)
        and not name.endswith(_LEFT_OUT_SUFFIXES)
        and not (parts[0] == "pyarrow" and name.startswith(_LEFT_OUT_LIBRARIES))
    )


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(path, target)
    except OSError as error:
        raise SparkError(f"can't copy {path} into the archive: {error.strerror}") from error


def _try_out(tree: Path, modules: Iterable[str]) -> None:
    """Import everything with the packages of the archive and PySpark alone, as a worker does; loops are compiled by it."""
    import pyspark

    libraries = Path(pyspark.__file__).parent / "python" / "lib"
    places = [str(tree), *map(str, sorted(libraries.glob("*.zip")))]
    program = f"from tailrace.pipeline.daemon import load_tasks; load_tasks(); import {', '.join(modules)}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA_"))}
    environment["PYTHONPATH"] = os.pathsep.join(places)
    done = subprocess.run(  # noqa: S603
        # -S leaves out the packages that are installed here.
        [sys.executable, "-S", "-c", program],
        env=environment,
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=_TRY_SECONDS,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SparkError(
            f"the archive would not work on a worker: {why}. Install tailrace again: pip install 'tailrace[spark]'"
        )


def _pack(tree: Path, packed: Path) -> None:
    def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
        # Executors run as any user.
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode |= 0o444
        return member

    with tarfile.open(packed, "w:gz", compresslevel=_COMPRESSION_LEVEL) as archive:
        archive.add(tree / ARCHIVE_MANIFEST, ARCHIVE_MANIFEST, filter=without_owner)
        for path in sorted(tree.iterdir()):
            if path.name != ARCHIVE_MANIFEST:
                archive.add(path, path.name, filter=without_owner)
