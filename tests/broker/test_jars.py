"""Jars are pinned, verified before use, and downloaded once."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.broker import jars
from millpond.broker.jars import Jar, JarError


class Repository:
    """A repository with made-up jars on this machine, which counts downloads. It may break connections."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.failures = 0
        """Answers that end in the middle."""
        self.continues = True
        """Whether it knows requests of parts of a file."""
        self.served: list[str] = []
        self.ranges: list[str] = []
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/maven2"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        name = next((each for each in self.content if request.path.endswith(f"/{Jar(each, '', 0).path.name}")), None)
        if name is None:
            request.send_error(404)
            return
        data, wanted = self.content[name], request.headers.get("Range", "")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.continues else 0
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        with self.lock:
            broken = self.failures > 0
            self.failures -= broken
            (self.ranges if start else self.served).append(name)
        request.wfile.write(data[start : start + (len(data) - start) // 2] if broken else data[start:])


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """Create a lock file with three jars, a repository that has them, and an empty cache."""
    content = {f"org.example:part-{number}:1.0": f"jar {number}".encode() * 40_000 for number in range(3)}
    lock = {
        "sets": {"example": {"jars": list(content)}},
        "jars": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in content.items()
        },
    }
    served = Repository(content)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_lock", lambda: lock)
    monkeypatch.setattr(jars, "maven", lambda _repository: SimpleNamespace(remote_repos={"own": served.url}))
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()


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


def test_a_dropped_connection_is_continued(repository):
    """What has arrived is not downloaded again, and the whole file has the pinned checksum."""
    repository.failures = 2
    first = jars.paths("example")
    assert [path.read_bytes() for path in first] == list(repository.content.values())
    assert len(repository.served) == 3
    assert len(repository.ranges) == 2


def test_an_aborted_download_is_continued_by_the_next_start(repository, capfd):
    """The parts that are there already count as progress; no unfinished file is left at the end."""
    repository.failures = 100
    with pytest.raises(JarError, match="it continues where it stopped"):
        jars.paths("example")
    assert list((jars.cache_directory() / "partial").iterdir())
    repository.failures, served = 0, len(repository.served)
    assert len(jars.paths("example")) == 3
    assert len(repository.served) + len(repository.ranges) > served
    assert list((jars.cache_directory() / "partial").iterdir()) == []
    assert "Downloading 3 jars" in capfd.readouterr().err


def test_a_repository_that_cannot_continue_sends_the_whole_file(repository):
    """The part that had arrived is replaced, not doubled."""
    repository.failures, repository.continues = 1, False
    assert [path.read_bytes() for path in jars.paths("example")] == list(repository.content.values())


def test_a_damaged_part_is_downloaded_from_its_beginning(repository):
    """It is the file on this machine that is damaged, and no fault of the repository."""
    jar = jars.locked("example")[0]
    part = jars.cache_directory() / "partial" / jar.sha256
    part.parent.mkdir(parents=True)
    part.write_bytes(b"something else")
    assert [path.read_bytes() for path in jars.paths("example")] == list(repository.content.values())


def test_damaged_jars_are_removed_and_fetched_again(repository):
    """After a power failure a file may have its size, but not its content."""
    path = jars.paths("example")[1]
    assert jars.remove_damaged("example") == []
    path.write_bytes(bytes(path.stat().st_size))
    assert jars.remove_damaged("example") == ["org.example:part-1:1.0"]
    assert jars.paths("example")[1].read_bytes() == repository.content["org.example:part-1:1.0"]


def test_unreachable_repository_is_reported_in_one_sentence(repository):
    """The error names a jar and the cause."""
    repository.content = {}
    with pytest.raises(JarError, match=r"org\.example:part-\d:1\.0 could not be downloaded \(HTTP 404 from http"):
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
