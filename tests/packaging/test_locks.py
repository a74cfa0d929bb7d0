"""The lock files: hashes for everything, the same versions everywhere, and nothing unneeded in images."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_IMAGES = ("requirements-build.lock", "requirements-operator.lock", "requirements-worker.lock")


def pins(name: str) -> dict[str, str]:
    """The version of each package in a lock; each has hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=[a-z0-9])", text):
        if block.startswith("#"):
            continue
        package, version = re.match(r"([\w.-]+)==(\S+)", block).groups()
        assert "--hash=sha256:" in block, package
        found[package] = version
    return found


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-spark.lock", *OF_IMAGES])
def test_locks_name_no_package_index(name: str) -> None:
    """Users choose their package index; the hashes make sure that the packages are the right ones."""
    assert not re.search(r"^\s*--(extra-)?(index|find-links)|https?://", (ROOT / name).read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_images_have_the_versions_that_were_tested(name: str) -> None:
    """`make lock` writes all of them together; workers have the same object store client as Spark."""
    tested = pins("requirements-spark.lock") | pins("requirements.lock")
    assert pins(name).items() <= tested.items()


def test_spark_is_installed_beside_what_was_tested() -> None:
    """Installing Spark later changes no other package in the environment of tests."""
    tested, spark = pins("requirements.lock"), pins("requirements-spark.lock")
    assert {name: spark[name] for name in spark.keys() & tested.keys()}.items() <= tested.items()
    assert {"pyspark", "pyarrow", "obstore", "pyiceberg", "duckdb"} <= spark.keys() - tested.keys()


def test_each_image_has_only_its_own_requirements() -> None:
    """The operator's image has no data plane, and the workers' image no Kubernetes client."""
    operator, worker = pins("requirements-operator.lock"), pins("requirements-worker.lock")
    data_plane = {"confluent-kafka", "mmh3", "rocksdict", "rich", "pygments"}
    assert {"kopf", "cryptography", "pyyaml", "aiohttp", "msgspec", "prometheus-client", "click"} <= operator.keys()
    assert not operator.keys() & data_plane
    assert data_plane | {"aiohttp", "msgspec", "prometheus-client", "click"} <= worker.keys()
    assert not worker.keys() & {"kopf", "cryptography", "pytest", "pandas"}
    assert pins("requirements-build.lock").keys() == {"setuptools"}


@pytest.mark.parametrize(
    "file",
    [
        "worker/Dockerfile",
        "operator/Dockerfile",
        "spark/Dockerfile",
        "examples/flights/Dockerfile",
        "examples/flights/compose/Dockerfile",
    ],
)
def test_an_image_is_built_from_what_the_context_has(file: str) -> None:
    """`.dockerignore` includes all copied files; base images are arguments without a registry's host."""
    allowed = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    text = (ROOT / file).read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert any(source == each or source.startswith(f"{each}/") for each in allowed), source
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base.strip("${}") in arguments or base in stages
    assert not any("." in value.partition("/")[0].partition(":")[0] for value in arguments.values())


def test_images_run_as_an_unprivileged_user() -> None:
    """Images run as the user that the pods specify."""
    for file in ("worker/Dockerfile", "operator/Dockerfile", "spark/Dockerfile"):
        assert "\nUSER 65532:65532\n" in (ROOT / file).read_text(encoding="utf-8")
