"""Directories and buckets behave alike: complete files or none, interrupted copies continue, errors are clear."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.errors import SnapshotError
from millpond.snapshots.locations import open_location
from millpond.snapshots.s3 import Bucket
from tests.snapshots.s3_server import KEY, SECRET, serving

DATA = os.urandom(20 << 20)


@pytest.fixture
def directory(tmp_path):
    return open_location(str(tmp_path / "at"))


@pytest.fixture
def in_memory(monkeypatch):
    """A bucket over obstore's store in memory."""
    obstore = pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket = open_location("s3://bucket/prefix")
    bucket._store = obstore.store.MemoryStore()
    return bucket


@pytest.fixture
def server(tmp_path, monkeypatch, versitygw):
    """A real S3 server, and what it serves."""
    root = tmp_path / "served"
    (root / "bucket").mkdir(parents=True)
    with serving(root) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield root / "bucket"


@pytest.fixture
def on_server(server, tmp_path):
    """A bucket on the server, with credentials in files."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "AWS_ACCESS_KEY_ID").write_text(KEY + "\n")
    (secret / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
    return open_location("s3://bucket/some/prefix", secret)


#: Marked by hand: nobody sees the fixture that asks for the server.
SERVER = [pytest.mark.s3, pytest.mark.process]


@pytest.fixture(params=["directory", "in_memory", pytest.param("on_server", marks=SERVER)])
def location(request):
    return request.getfixturevalue(request.param)


def test_files_come_back_as_they_were_put(location, tmp_path):
    """Files are put from bytes and from files, listed by folder, replaced and deleted."""
    (tmp_path / "local").write_bytes(DATA)
    location.put_file(tmp_path / "local", "a/b/large")
    location.put("a/small", b"1")
    location.put("ab/other", b"22")
    location.put("a/small", b"333")
    assert location.get("a/small") == b"333"
    assert location.list("a") == [("a/b/large", len(DATA)), ("a/small", 3)]
    assert len(location.list()) == 3
    assert location.list("nothing") == []
    told = []
    location.fetch("a/b/large", tmp_path / "fetched", told.append)
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert sum(told) == len(DATA)
    location.delete(["a/small", "a/small", "a/b/large"])
    assert location.list("a") == []
    assert location.list() == [("ab/other", 2)]


def test_copying_that_was_cut_off_is_continued(location, tmp_path):
    """Bytes that are already copied are not fetched again."""
    location.put("x", DATA)
    told = []

    def cut(count):
        told.append(count)
        if sum(told) >= 8 << 20:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        location.fetch("x", tmp_path / "fetched", cut)
    assert not (tmp_path / "fetched").exists()
    rest = []
    location.fetch("x", tmp_path / "fetched", rest.append)
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert sum(told) + sum(rest) == len(DATA)
    assert rest


def test_partial_copy_of_a_larger_file_begins_anew(location, tmp_path):
    """The partial copy cannot be of this file."""
    location.put("x", b"short")
    (tmp_path / "fetched.partial").write_bytes(b"something much longer")
    location.fetch("x", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"short"


def test_folders_are_listed_without_their_files(location):
    """Files beside the folders are not listed."""
    for path in ("app/b/1", "app/b/2", "app/a/deep/3", "app/file", "application/c/4"):
        location.put(path, b"x")
    assert location.folders("app") == ["a", "b"]
    assert location.folders("nothing") == []
    assert location.folders("app/file") == []
    assert location.exists("app/file")
    assert not location.exists("app/b")
    assert not location.exists("app/no")


def test_full_local_disk_is_named_as_such(location):
    """The error does not blame the location."""
    location.put("x", b"data")
    folder = Path("/dev/full")
    with pytest.raises(SnapshotError, match=r"cannot write '/dev/full/x': .*local disk"):
        location.fetch("x", folder / "x")


def test_home_directory_is_expanded(monkeypatch, tmp_path):
    """`~` is expanded as in a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    open_location("~/snapshots").put("x", b"1")
    assert (tmp_path / "snapshots" / "x").read_bytes() == b"1"
    with pytest.raises(SnapshotError, match="home directory of a user that this machine does not have"):
        open_location("~no-such-user-here/snapshots")


def test_missing_file_is_one_sentence(location, tmp_path):
    """Reading and fetching name the path and the location."""
    for attempt in (lambda: location.get("no/such"), lambda: location.fetch("no/such", tmp_path / "x")):
        with pytest.raises(SnapshotError, match=r"cannot read 'no/such' in '.*': .*check the"):
            attempt()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://x/y", "unknown kind"),
        ("", "is empty"),
        ("file://host/path", "names a host"),
        ("s3:///prefix", "names no bucket"),
    ],
)
def test_location_of_another_kind_is_rejected(uri, message):
    """The error names valid kinds of URIs."""
    with pytest.raises(SnapshotError, match=message):
        open_location(uri)


def test_directory_shows_whole_files_only(directory, tmp_path):
    """A file that cannot be written leaves no partial file."""
    with pytest.raises(SnapshotError, match="cannot write 'x'"):
        directory.put_file(tmp_path / "missing", "x")
    assert directory.list() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_directory_is_one_sentence(directory, tmp_path):
    """The error has the system's reason."""
    (tmp_path / "at").mkdir(mode=0o500)
    with pytest.raises(SnapshotError, match=r"cannot write 'x/y' .*Permission denied"):
        directory.put("x/y", b"")


def test_credentials_are_in_no_message(in_memory):
    """Servers repeat the key id in their errors."""

    class Rejecting:
        pass

    in_memory._store = Rejecting()
    in_memory._api = type(
        "Api", (), {"get": staticmethod(lambda *_: (_ for _ in ()).throw(ValueError(f"{KEY} {SECRET}")))}
    )
    with pytest.raises(SnapshotError) as raised:
        in_memory.get("x")
    assert KEY not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_unreadable_credentials_are_one_sentence(tmp_path):
    """Credentials that are configured but unreadable must not be ignored."""
    pytest.importorskip("obstore")
    with pytest.raises(SnapshotError, match=r"credentials in '.*' cannot be read"):
        Bucket("s3://b", "b", "", tmp_path / "missing")


def test_rejected_credentials_are_one_sentence(on_server, monkeypatch):
    """The error does not contain the credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-one")
    with pytest.raises(SnapshotError, match="credentials were rejected") as raised:
        open_location("s3://bucket/x").list()
    assert "wrong-one" not in str(raised.value)


def test_missing_bucket_is_one_sentence(on_server, monkeypatch):
    """A missing bucket must not look like an empty one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(SnapshotError, match="the file or bucket does not exist"):
        open_location("s3://elsewhere/x").get("y")


def test_credentials_in_the_location_are_rejected_and_not_repeated():
    """The location is logged by every worker."""
    with pytest.raises(SnapshotError, match="has credentials in it") as raised:
        open_location("s3://AKIA:topsecret@bucket/prefix")
    assert "topsecret" not in str(raised.value)


def test_missing_credentials_are_one_sentence(monkeypatch, tmp_path):
    """The client then requests those of the machine's role; the error must not be about that request."""
    pytest.importorskip("obstore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    bucket = open_location("s3://bucket/x")
    told = "Error performing PUT http://169.254.169.254/latest/api/token in 2ms - 403 Forbidden Debug source: Generic {"
    bucket._api = type("Api", (), {"list": staticmethod(lambda *_, **__: (_ for _ in ()).throw(ValueError(told)))})
    with pytest.raises(SnapshotError, match=r"no credentials are set, .* set AWS_ACCESS_KEY_ID") as raised:
        bucket.list()
    assert "169.254" not in str(raised.value)
