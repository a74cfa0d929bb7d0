"""The cache for faster starts: the metadata of an empty data directory, and the class archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.broker import start_cache

FILES = ("meta.properties", "bootstrap.checkpoint")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache for one test."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "broker"


def formatted(directory):
    """Create a data directory as the storage tool formats it."""
    directory.mkdir(parents=True)
    for name in FILES:
        (directory / name).write_text(f"{name} of {directory.name}")
    return directory


def test_a_formatted_directory_is_copied_for_the_same_jars(tmp_path):
    """Both files are copied; before the first directory there is nothing to copy."""
    assert not start_cache.restore_formatted(tmp_path / "none", "a.jar")
    start_cache.keep_formatted(formatted(tmp_path / "first"), "a.jar")
    assert start_cache.restore_formatted(tmp_path / "second", "a.jar")
    assert {each.name: each.read_text() for each in (tmp_path / "second").iterdir()} == {
        name: f"{name} of first" for name in FILES
    }
    assert not start_cache.restore_formatted(tmp_path / "third", "b.jar")


@pytest.mark.parametrize("damage", [b"", bytes(80)])
@pytest.mark.parametrize("name", FILES)
def test_damaged_metadata_is_forgotten(tmp_path, cache, name, damage):
    """Each broker would fail with it, on all data directories."""
    start_cache.keep_formatted(formatted(tmp_path / "first"), "a.jar")
    [kept] = cache.iterdir()
    (kept / name).write_bytes(damage)
    assert not start_cache.restore_formatted(tmp_path / "second", "a.jar")
    start_cache.keep_formatted(formatted(tmp_path / "third"), "a.jar")
    assert start_cache.restore_formatted(tmp_path / "fourth", "a.jar")


def test_the_first_formatted_directory_stays(tmp_path, cache):
    """Brokers that start at the same time do not interfere, and leave no other file."""
    for name in ("first", "second"):
        start_cache.keep_formatted(formatted(tmp_path / name), "a.jar")
    [kept] = cache.iterdir()
    assert (kept / "meta.properties").read_text() == "meta.properties of first"


def test_a_directory_with_more_than_metadata_is_not_kept(tmp_path, cache):
    """Only the files of an empty data directory may be copied to another one."""
    used = formatted(tmp_path / "used")
    (used / "orders-0").mkdir()
    start_cache.keep_formatted(used, "a.jar")
    assert not cache.exists()


def test_a_class_archive_belongs_to_a_java_and_its_jars(tmp_path, cache):
    """It is written once for each, and only if Java can write one."""
    java = tmp_path / "java"
    java.write_text("java")
    with start_cache.new_class_archive(java, "a.jar"):
        pass
    assert not start_cache.class_archive(java, "a.jar").exists()
    with start_cache.new_class_archive(java, "a.jar") as options:
        path = options[0].partition("=")[2]
        Path(path).touch()
    archive = start_cache.class_archive(java, "a.jar")
    assert list(cache.iterdir()) == [archive]
    with start_cache.new_class_archive(java, "a.jar") as options:
        assert not options
    assert not start_cache.class_archive(java, "b.jar").exists()
    java.write_text("another java")
    assert start_cache.class_archive(java, "a.jar") != archive
