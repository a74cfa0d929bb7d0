"""A snapshot is complete when its manifest exists, and not before."""

from __future__ import annotations

import msgspec
import pytest

from millpond.errors import SnapshotError
from millpond.snapshots import versions
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.locations import MAX_BYTES, open_location
from millpond.snapshots.manifest import FORMAT, Manifest, decode, encode
from tests.snapshots.changelogs import BUILDERS
from tests.snapshots.reference import write_snapshot

NOW = 1_790_000_000_000
RECORDS = [(b"key-%d" % number, b"value", number, None) for number in range(25)]


@pytest.fixture
def location(tmp_path):
    return open_location(f"file://{tmp_path}/with%20space")


def written(location, version, application="app"):
    """A snapshot of one store in three files."""
    layout = layout_of(BUILDERS["timestamped_key_value"])
    stores = {"tkv": (layout, "app-tkv-changelog", "id", {0: (RECORDS, 25), 1: ([], 0)})}
    return write_snapshot(location, application, version, stores, as_of_ms=NOW, rows_per_file=10)


def test_manifest_survives_its_encoding(location):
    """The manifest is encoded as JSON."""
    manifest = written(location, versions.new_version(NOW))
    assert decode(encode(manifest)) == manifest
    assert len(manifest.files) == 3
    assert versions.read(location, "app", manifest.version) == manifest


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 1}', b'{"format": "x"}', b"\xff", b"null"])
def test_bytes_that_are_no_manifest_are_rejected(data):
    """The error is one sentence."""
    with pytest.raises(SnapshotError, match="manifest cannot be read"):
        decode(data)


def test_truncated_manifest_is_rejected_at_every_length(location):
    """No prefix of JSON is valid JSON."""
    data = encode(written(location, versions.new_version(NOW))).rstrip()
    for length in range(0, len(data), 7):
        with pytest.raises(SnapshotError):
            decode(data[:length])


def test_manifest_of_a_newer_format_is_rejected_whatever_else_it_has():
    """Its other fields may mean something else."""
    with pytest.raises(SnapshotError, match=f"format {FORMAT + 1}.*use a newer"):
        decode(msgspec.json.encode({"format": FORMAT + 1, "all": "different"}))


def test_manifest_cannot_name_files_outside_of_its_folder(location):
    """Others may be able to write to the location."""
    manifest = written(location, versions.new_version(NOW))
    data = encode(manifest).replace(b"tkv/0-0.sst", b"../../../etc/x")
    with pytest.raises(SnapshotError, match="outside of its folder"):
        decode(data)


def test_versions_are_listed_newest_first_and_only_complete_ones(location):
    """A folder without a manifest belongs to a job that failed or still runs."""
    ids = [versions.new_version(NOW + 1000 * each) for each in range(3)]
    for each in (ids[1], ids[0], ids[2]):
        written(location, each)
    location.delete([versions.file_path("app", ids[1], versions.MANIFEST)])
    written(location, ids[1], application="other")
    location.put("app/notes.txt", b"")
    location.put("app/notes/manifest.json", b"")
    assert versions.versions(location, "app") == [ids[2], ids[0]]
    assert versions.versions(location, "nobody") == []


def test_version_ids_sort_by_time():
    """Within a year, and from second to second."""
    ids = [versions.new_version(NOW + each * 1000) for each in (0, 1, 60, 86_400, 40_000_000)]
    assert ids == sorted(ids)
    assert [versions.created_ms(each) for each in ids[:2]] == [NOW, NOW + 1000]
    assert versions.created_ms("manifest.json") is None


def test_publishing_rejects_missing_and_cut_off_files(location):
    """No manifest is written."""
    manifest = written(location, versions.new_version(NOW))
    location.delete([versions.file_path("app", manifest.version, versions.MANIFEST)])
    path = versions.file_path("app", manifest.version, manifest.files[1].path)
    location.put(path, location.get(path)[:-1])
    with pytest.raises(SnapshotError, match="not complete"):
        versions.publish(location, manifest)
    location.delete([path])
    with pytest.raises(SnapshotError, match="is missing"):
        versions.publish(location, manifest)
    assert versions.versions(location, "app") == []


def test_retention_deletes_the_oldest_with_all_their_files(location):
    """Versions of other applications are kept."""
    ids = [written(location, versions.new_version(NOW + 1000 * each)).version for each in range(4)]
    other = written(location, versions.new_version(NOW), application="application").version
    assert versions.retain(location, "app", 2, NOW) == ids[:2]
    assert versions.versions(location, "app") == [ids[3], ids[2]]
    assert {path.split("/")[1] for path, _ in location.list("app")} == set(ids[2:])
    assert versions.versions(location, "application") == [other]
    with pytest.raises(SnapshotError, match="at least one"):
        versions.retain(location, "app", 0, NOW)


def damage(location, version):
    """Cut a manifest off."""
    path = versions.file_path("app", version, versions.MANIFEST)
    location.put(path, location.get(path)[:-9])


def test_newest_version_that_can_be_used_is_found_behind_those_that_cannot(location, caplog):
    """One version is damaged, and one is of next year."""
    good = [written(location, versions.new_version(NOW + 1000 * each)).version for each in range(2)]
    damaged = written(location, versions.new_version(NOW + 5000)).version
    future = written(location, versions.new_version(NOW + 31_536_000_000)).version
    damage(location, damaged)
    found = versions.newest(location, "app", NOW)
    assert found is not None
    assert found.version == good[1]
    assert [record.message.split(": skipped")[0] for record in caplog.records] == [
        f"snapshot {each} of app" for each in (future, damaged)
    ]
    assert versions.newest(location, "nobody", NOW) is None


def test_retention_keeps_as_many_as_can_be_used(location):
    """Damaged versions and versions in the future do not count."""
    ids = [written(location, versions.new_version(NOW + 1000 * each)).version for each in range(5)]
    future = written(location, versions.new_version(NOW + 31_536_000_000)).version
    damage(location, ids[3])
    assert versions.retain(location, "app", 2, NOW) == ids[:2]
    assert versions.versions(location, "app") == [future, ids[4], ids[3], ids[2]]
    assert versions.retain(location, "app", 3, NOW) == []


def test_manifest_that_is_too_large_is_not_read(location):
    """It would fill the worker's memory."""
    version = written(location, versions.new_version(NOW)).version
    location.put(versions.file_path("app", version, versions.MANIFEST), b" " * (MAX_BYTES + 1))
    with pytest.raises(SnapshotError, match=rf"has {MAX_BYTES + 1} bytes, and the limit is {MAX_BYTES}"):
        versions.read(location, "app", version)


def test_sweeping_deletes_only_old_folders_without_a_manifest(location):
    """A job may still write into a young folder."""
    complete = written(location, versions.new_version(NOW)).version
    old, young = versions.new_version(NOW), versions.new_version(NOW + 3_600_000)
    for each in (old, young):
        location.put(f"app/{each}/kv/0.sst", b"x")
    assert versions.sweep(location, "app", older_than_ms=3_600_000, now_ms=NOW + 3_700_000) == [old]
    assert {path.split("/")[1] for path, _ in location.list("app")} == {complete, young}


def test_verification_names_what_is_wrong(location):
    """One sentence for each missing, truncated or damaged file."""
    manifest = written(location, versions.new_version(NOW))
    assert versions.verify(location, manifest) == []
    paths = [versions.file_path("app", manifest.version, each.path) for each in manifest.files]
    location.delete([paths[0]])
    location.put(paths[1], location.get(paths[1])[:-1])
    damaged = bytearray(location.get(paths[2]))
    damaged[len(damaged) // 2] ^= 1
    location.put(paths[2], bytes(damaged))
    missing, cut, changed = versions.verify(location, manifest)
    assert "is missing" in missing
    assert "bytes instead of" in cut
    assert "is damaged" in changed


def test_renamed_folder_is_rejected(location):
    """The folder's manifest names another version."""
    manifest = written(location, versions.new_version(NOW))
    copy = versions.new_version(NOW + 5000)
    location.put(versions.file_path("app", copy, versions.MANIFEST), encode(manifest))
    with pytest.raises(SnapshotError, match="renamed"):
        versions.read(location, "app", copy)


def test_unknown_fields_are_ignored_and_missing_ones_are_not(location):
    """A later version of millpond may add fields to the same format."""
    data = msgspec.json.decode(encode(written(location, versions.new_version(NOW))))
    assert isinstance(decode(msgspec.json.encode({**data, "later": 1})), Manifest)
    with pytest.raises(SnapshotError, match="topology"):
        decode(msgspec.json.encode({name: each for name, each in data.items() if name != "topology"}))


def test_folder_of_a_day_that_is_not_is_no_version():
    """The folder is ignored; versions beside it are listed."""
    assert versions.created_ms("20261399T000000Z-aaaaaa") is None
