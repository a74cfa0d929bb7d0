"""Writes the golden files with Kafka Streams itself: `python tests/oracle/make_goldens.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millpond.broker import jars, java

HERE = Path(__file__).parent


def main() -> int:
    """Run the Java sides; what they log is shown only when they fail."""
    runs = (
        ("Topologies.java", "describe", "golden"),
        ("Topologies.java", "unnamed", "golden-unnamed"),
        ("Behaviours.java", "run", "golden-behaviours"),
        ("StoreReads.java", "run", "golden-store-reads"),
        ("VersionedTables.java", "run", "golden-versioned"),
        ("Inventory.java", "run", "golden-inventory"),
    )
    return max(make(*run) for run in runs)


def make(program: str, command: str, directory: str) -> int:
    """Replace the golden files of one directory; the exit code of Java."""
    for old in (HERE / directory).glob("*.txt"):
        old.unlink()
    arguments = [
        java.find_jdk() / "bin" / "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-cp",
        jars.classpath("kafka-streams"),
        HERE / "java" / program,
        command,
        HERE / directory,
    ]
    return subprocess.run(list(map(str, arguments)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
