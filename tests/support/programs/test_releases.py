"""Released programs: what is downloaded is whole and the right file, or it is not used."""

from __future__ import annotations

import contextlib
import hashlib
import io
import socket
import subprocess
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cluster import binaries
from tests.support.programs import helm, releases, versitygw
from tests.support.programs.releases import Release, ReleaseError

PROGRAM = b"#!/bin/sh\necho it runs\n"


def archived(kind: str) -> bytes:
    """An archive with the program and another file."""
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("all/README", "read")
            archive.writestr("all/program", PROGRAM)
    else:
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for name, content in (("all/README", b"read"), ("all/program", PROGRAM)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def site():
    """A web server: files by path; `cut` has paths whose answers end too early."""
    files, cut = {}, set()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            content = files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if self.command == "GET" and content is not None:
                self.wfile.write(content[: len(content) // 2] if self.path in cut else content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.files, server.cut, server.url = files, cut, f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def release(site, kind="tar.gz", **given) -> Release:
    """An archive on the site, and its right checksum."""
    content = archived(kind)
    site.files[f"/program.{kind}"] = content
    pinned = {"digest": f"sha512:{hashlib.sha512(content).hexdigest()}"}
    return Release(f"{site.url}/program.{kind}", "all/program", **(given or pinned))


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_the_program_of_an_archive_runs(site, tmp_path, kind, capsys, processes):
    """It has its final name only when it is whole, and nothing else is left."""
    target = tmp_path / "bin" / "program"
    assert releases.fetch("program", target, {"program": release(site, kind)})
    assert subprocess.run([target], capture_output=True, check=True).stdout == b"it runs\n"
    assert list(target.parent.iterdir()) == [target]
    assert f"Downloading program from {site.url.removeprefix('http://')} " in capsys.readouterr().err


@pytest.mark.parametrize("listed", ["{sum}\n", "0000  other.tar.gz\n{sum}  program.tar.gz\n", "{sum} *program.tar.gz"])
def test_the_checksum_may_be_the_one_that_the_project_publishes(site, tmp_path, listed):
    """In a file of its own, or in a list."""
    digest = hashlib.sha256(archived("tar.gz")).hexdigest()
    site.files["/sums"] = listed.replace("{sum}", digest).encode()
    releases.install(release(site, checksums=f"{site.url}/sums"), tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == PROGRAM
    site.files["/sums"] = b"<html>not found</html>"
    with pytest.raises(ReleaseError, match="has no checksum of it"):
        releases.install(release(site, checksums=f"{site.url}/sums"), tmp_path / "program")


def test_another_file_is_refused_in_one_sentence(site, tmp_path, capsys):
    """Go builds the program then."""
    target = tmp_path / "program"
    assert not releases.fetch("program", target, {"program": release(site, digest=f"sha256:{'0' * 64}")})
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"program.tar.gz from {site.url.removeprefix('http://')} is not used: its sha256 is ")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(site, tmp_path, capsys):
    """Neither half a program under its name, nor another file."""
    made = release(site)
    site.cut.add("/program.tar.gz")
    assert not releases.fetch("program", tmp_path / "program", {"program": made})
    assert "could not be downloaded" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_hosts_that_do_not_answer_cost_one_short_wait(tmp_path, monkeypatch, capsys):
    """All are asked at the same time, and only once in a process."""
    monkeypatch.setattr(releases, "PROBE_S", 0.5)
    with contextlib.ExitStack() as stack:
        silent = {}
        for name in ("one", "two", "three"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            silent[name] = Release(f"http://127.0.0.1:{listener.getsockname()[1]}/{name}")
        waits = releases.reachable.cache_info().misses
        assert [releases.fetch(name, tmp_path / name, silent) for name in silent] == [False] * 3
        assert releases.reachable.cache_info().misses == waits + 1
    assert capsys.readouterr().err.count("does not answer") == 3


def test_every_program_is_known_for_every_platform():
    """Each has the version that Go would build, and a checksum or its address; one is not released for macOS."""
    versions = {
        binaries.ETCD: binaries.ETCD_RELEASE,
        **dict.fromkeys((binaries.API_SERVER, binaries.CONTROLLER_MANAGER, binaries.KUBECTL), binaries.KUBERNETES),
        **{each.name: each.release for each in (*helm.PROGRAMS.values(), versitygw.PROGRAM)},
    }
    for system in ("linux", "darwin"):
        for processor in ("amd64", "arm64"):
            known = releases.releases(f"{system}-{processor}")
            lacking = {binaries.CONTROLLER_MANAGER} if system == "darwin" else set()
            assert known.keys() == versions.keys() - lacking
            for name, each in known.items():
                assert each.url.startswith("https://")
                assert versions[name] in each.url or "envtest" in each.url
                assert each.digest or each.checksums.startswith("https://")


def test_a_platform_without_releases_is_told(tmp_path, monkeypatch, capsys):
    """Go may be able to build for it."""
    monkeypatch.setattr(releases.platform, "system", lambda: "Plan9")
    monkeypatch.setattr(releases.platform, "machine", lambda: "aarch64")
    assert not releases.fetch("etcd", tmp_path / "etcd")
    assert capsys.readouterr().err == "etcd is not released for plan9-arm64\n"
