"""Writes golden/*.txt with Kafka Streams itself: `python tests/oracle/make_goldens.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millpond.broker import jars, java

HERE = Path(__file__).parent


def main() -> int:
    """Run the Java side; what it logs is shown only when it fails."""
    command = [
        java.find_jdk() / "bin" / "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        jars.classpath("kafka-streams"),
        HERE / "java" / "Topologies.java",
        "describe",
        HERE / "golden",
    ]
    for old in (HERE / "golden").glob("*.txt"):
        old.unlink()
    return subprocess.run(list(map(str, command)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
