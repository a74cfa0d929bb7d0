"""Jars are pinned, verified before use, and downloaded once."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millpond.broker import jars
from millpond.broker.jars import Jar, JarError


class Repository:
    """A remote repository with made-up jars that counts downloads; it replaces jgo's context."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.failures = 0
        self.served: list[str] = []

    def __call__(self, repository: Path, **_resolver):
        self.scratch = repository
        return self

    def project(self, group: str, artifact: str):
        return _Remote(self, f"{group}:{artifact}")


class _Remote:
    def __init__(self, repository: Repository, name: str) -> None:
        self.repository, self.name = repository, name

    def at_version(self, version: str):
        self.name = f"{self.name}:{version}"
        return self

    def artifact(self):
        return self

    @property
    def cached_path(self) -> Path:
        return self.repository.scratch / self.name.replace(":", "_")

    def resolve(self) -> Path:
        if self.repository.failures:
            self.repository.failures -= 1
            self.cached_path.write_bytes(b"half")
            raise ConnectionError("the line broke")
        assert not self.cached_path.exists(), "a half-written file would be taken for a whole one"
        self.repository.served.append(self.name)
        self.cached_path.write_bytes(self.repository.content[self.name])
        return self.cached_path


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """Create a lock file with three jars, a repository that has them, and an empty cache."""
    content = {f"org.example:part-{number}:1.0": f"jar {number}".encode() * 100 for number in range(3)}
    lock = {
        "sets": {"example": {"jars": list(content)}},
        "jars": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in content.items()
        },
    }
    served = Repository(content)
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_lock", lambda: lock)
    monkeypatch.setattr(jars, "maven", served)
    return served


def test_cached_jar_is_not_downloaded_again(repository):
    """The first use downloads all jars, the second none; the class path has the order of the lock file."""
    first = jars.classpath("example")
    assert jars.classpath("example") == first
    assert sorted(repository.served) == sorted(repository.content)
    assert [Path(each).read_bytes() for each in first.split(os.pathsep)] == list(repository.content.values())


def test_concurrent_requests_cause_one_download(repository):
    """The lock of the cache makes all but the first wait, and then use the cache."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: jars.classpath("example"), range(4)))
    assert len(set(answers)) == 1
    assert len(repository.served) == len(repository.content)


def test_jar_with_a_wrong_checksum_never_enters_the_cache(repository):
    """A jar that differs from the pinned one is a clear error; the next attempt downloads it again."""
    good = repository.content["org.example:part-1:1.0"]
    repository.content["org.example:part-1:1.0"] = b"evil" + good[4:]
    for _ in range(2):
        with pytest.raises(JarError, match=r"org\.example:part-1:1\.0 has SHA-256 [0-9a-f]{64}, but .* pins"):
            jars.paths("example")
    assert not list(jars.cache_directory().rglob("part-1*"))
    repository.content["org.example:part-1:1.0"] = good
    assert len(jars.paths("example")) == 3


def test_dropped_connection_is_retried(repository):
    """Two failures do not matter, and their partial files are not used as jars."""
    repository.failures = 2
    assert all(path.exists() for path in jars.paths("example"))


def test_unreachable_repository_is_reported_in_one_sentence(repository):
    """Without the network the error names a jar and the cause."""
    repository.failures = 1_000
    with pytest.raises(JarError, match=r"org\.example:part-\d:1\.0 could not be downloaded \(the line broke\)"):
        jars.paths("example")


def test_a_truncated_file_in_the_cache_is_fetched_again(repository):
    """A damaged cache is repaired."""
    path = jars.paths("example")[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert hashlib.sha256(jars.paths("example")[0].read_bytes()).hexdigest() == jars.locked("example")[0].sha256


def test_an_unknown_set_is_named_together_with_the_known_ones(repository):
    """The error for a misspelled set lists the sets."""
    with pytest.raises(JarError, match=r"'exmaple'.*example"):
        jars.locked("exmaple")


def test_without_jgo_the_error_names_the_extra(monkeypatch, tmp_path):
    """Jgo is in an extra, which the error names."""
    monkeypatch.setitem(sys.modules, "jgo.config", None)
    with pytest.raises(JarError, match=r"millpond\[broker\]"):
        jars.maven(tmp_path)


def test_the_cache_is_where_the_environment_says(monkeypatch):
    """MILLPOND_CACHE wins over XDG_CACHE_HOME, which wins over the home directory."""
    monkeypatch.setenv("MILLPOND_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert jars.cache_directory() == Path("/a")
    monkeypatch.delenv("MILLPOND_CACHE")
    assert jars.cache_directory() == Path("/b/millpond")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/c")
    assert jars.cache_directory() == Path("/c/.cache/millpond")


@pytest.mark.parametrize("jar_set", ["kafka", "kafka-streams", "spark", "iceberg", "iceberg-s3"])
def test_the_lock_file_pins_every_jar_and_names_no_host(jar_set):
    """Each jar has coordinates, a size and a SHA-256; jgo knows the repository."""
    pinned = jars.locked(jar_set)
    assert len(pinned) == len({jar.path for jar in pinned})
    for jar in pinned:
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.coordinate)
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.size > 0
    text = Path(jars.__file__).with_name(jars.LOCK_FILE).read_text()
    assert "://" not in text


def test_the_two_sets_share_kafka_of_one_version():
    """The broker and the Kafka Streams peers have the same version."""
    versions = {
        jar.coordinate.split(":")[2]
        for jar_set in ("kafka", "kafka-streams")
        for jar in jars.locked(jar_set)
        if jar.coordinate.startswith("org.apache.kafka:")
    }
    assert versions == {"4.1.0"}


def test_cache_has_the_layout_of_a_maven_repository():
    """Other tools know that layout."""
    jar = Jar("org.apache.kafka:kafka_2.13:4.1.0", "0" * 64, 1)
    assert jar.path == Path("jars/org/apache/kafka/kafka_2.13/4.1.0/kafka_2.13-4.1.0.jar")
