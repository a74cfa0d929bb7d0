"""Rewrite `jars.lock.toml`: `python -m millpond.broker.lock`, for a maintainer who upgrades Kafka.

It resolves each set below with jgo, downloads each jar and records its checksum. Review the diff before you commit it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from . import jars

__all__ = ("ROOTS", "main")

KAFKA_VERSION = "4.1.0"
SPARK_VERSION = "4.0.0"  # the newest with a complete connector; it also runs with pyspark 4.0.5
ICEBERG_VERSION = "1.10.0"
_SLF4J = "org.slf4j:slf4j-simple:1.7.36"  # Kafka's pom names no logging backend; this one writes to stderr

ROOTS: dict[str, tuple[str, ...]] = {
    "kafka": (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", _SLF4J),
    "kafka-streams": (
        f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-streams-test-utils:{KAFKA_VERSION}",
        _SLF4J,
    ),
    "spark": (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",),
    "iceberg": (f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{ICEBERG_VERSION}",),
    "iceberg-s3": (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}",),
}
"""The coordinates from which each set is resolved, transitively."""

ONLY = {
    "spark": frozenset(
        {"spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"}
    ),
    "iceberg": frozenset({"iceberg-spark-runtime-4.0_2.13"}),
    "iceberg-s3": frozenset({"iceberg-aws-bundle"}),
}
"""The only artifacts to lock, for sets whose other artifacts are in the pyspark package or inside the jar."""


def main() -> None:
    """Resolve, download, hash, and write the lock file next to this module."""
    with tempfile.TemporaryDirectory() as scratch:
        context = jars.maven(Path(scratch))
        sets = {name: _needed(name, _resolve(context, roots)) for name, roots in ROOTS.items()}
        artifacts = {_coordinate(artifact): artifact for resolved in sets.values() for artifact in resolved}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            hashed = dict(zip(artifacts, pool.map(_hash, artifacts.values()), strict=True))
    lines = [
        "# Every jar millpond runs, pinned. Written by `python -m millpond.broker.lock`; do not edit.",
        f'kafka_version = "{KAFKA_VERSION}"',
    ]
    for name, resolved in sets.items():
        lines += ["", f"[sets.{name}]", "jars = [", *(f'    "{_coordinate(each)}",' for each in resolved), "]"]
    lines += ["", "[jars]"]
    for coordinate, jar in sorted(hashed.items()):
        lines.append(f'"{coordinate}" = {{ size = {jar.size}, sha256 = "{jar.sha256}" }}')
    Path(__file__).with_name(jars.LOCK_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _resolve(context: Any, roots: tuple[str, ...]) -> list[Any]:
    """Return the compile and runtime dependencies of the roots: the roots first, the rest by name."""
    # Resolved like one project: the versions of the roots win, so there is one slf4j-api for all.
    dependencies = [context.create_dependency(root) for root in roots]
    for dependency in dependencies:
        dependency.scope = "compile"
    inputs, transitive = context.resolver.resolve(dependencies)
    rest = [each for each in transitive if each.scope in ("compile", "runtime")]
    return [each.artifact for each in (*inputs, *sorted(rest, key=lambda each: str(each.artifact)))]


def _needed(name: str, resolved: list[Any]) -> list[Any]:
    """Return the artifacts of a set to lock."""
    return [each for each in resolved if name not in ONLY or each.artifactId in ONLY[name]]


def _coordinate(artifact: Any) -> str:
    if artifact.classifier or artifact.packaging != "jar":
        message = f"{artifact} is not a plain jar: the lock file cannot contain it."
        raise jars.JarError(message)
    return f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"


def _hash(artifact: Any) -> jars.Jar:
    file = artifact.resolve()
    jar = jars.Jar(_coordinate(artifact), sha256="", size=file.stat().st_size)
    return dataclasses.replace(jar, sha256=jars.sha256(file))


if __name__ == "__main__":
    main()
