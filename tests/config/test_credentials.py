"""Credentials in a directory, as in a mounted Secret, and settings in one variable of the environment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond.runtime.config.credentials import CredentialFiles, files_of
from millpond.runtime.config.model import Config, Secret

PASSWORD = "hunter2-swordfish"
NEEDED = {"MILLPOND_APPLICATION_ID": "a", "MILLPOND_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A Secret as the kubelet mounts it: files are links into a hidden directory, which is a link itself."""
    data = tmp_path / "..2026_11_21"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data.name)
    secret = {"sasl.username": "alice\n", "sasl.password": f"{PASSWORD}\n", "security.protocol": "SASL_SSL"}
    for name, text in secret.items():
        (data / name).write_text(text)
        (tmp_path / name).symlink_to(f"..data/{name}")
    return tmp_path


def load(directory: Path, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None) -> Config:
    return Config.load(None, {**NEEDED, "MILLPOND_CREDENTIALS_DIR": str(directory), **(environ or {})}, flags)


def test_a_mounted_secret_goes_to_all_clients(mounted: Path) -> None:
    """Each file is a property; a newline at its end is from the editor."""
    config = load(mounted)
    for settings in (config.consumer_settings(), config.producer_settings(), config.admin_settings()):
        assert settings["sasl.username"] == "alice"
        assert settings["sasl.password"] == PASSWORD
        assert settings["security.protocol"] == "sasl_ssl" or settings["security.protocol"] == "SASL_SSL"


def test_only_one_newline_is_taken_off_and_blanks_stay(tmp_path: Path) -> None:
    """Passwords may begin and end with any character."""
    (tmp_path / "sasl.password").write_bytes(b" x \n\n")
    (tmp_path / "sasl.username").write_bytes(b"bob\r\n")
    settings = load(tmp_path).consumer_settings()
    assert settings["sasl.password"] == " x \n"
    assert settings["sasl.username"] == "bob"


def test_mounted_secret_is_never_shown(mounted: Path) -> None:
    """Not even user names: they were put into a Secret for a reason."""
    config = load(mounted)
    shown = repr(config) + str(config.as_mapping()) + repr(config.consumer_settings())
    assert PASSWORD not in shown
    assert "alice" not in repr(config) + str(config.as_mapping())
    assert isinstance(config.consumer["sasl.username"], Secret)


def test_referenced_files_may_share_the_directory(tmp_path: Path) -> None:
    """Certificates are mounted from the same Secret; keystores are not text."""
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "user.p12").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "ssl.ca.location").write_text(str(tmp_path / "ca.crt"))
    config = load(tmp_path)
    assert set(config.consumer) == {"ssl.ca.location"}


def test_credentials_win_over_the_environment_and_flags_over_them(mounted: Path) -> None:
    """Variables from when the pod was created do not hide a rotated Secret."""
    environ = {"MILLPOND_SASL_USERNAME": "eve"}
    assert load(mounted, environ).consumer_settings()["sasl.username"] == "alice"
    assert load(mounted, environ, {"sasl.username": "carol"}).consumer_settings()["sasl.username"] == "carol"


def test_a_program_may_name_the_directory(mounted: Path) -> None:
    """`Config.of` reads it, too, and values given in code win."""
    config = Config.of(application_id="a", bootstrap_servers="b:1", credentials_dir=mounted, sasl_username="dora")
    settings = config.admin_settings()
    assert (settings["sasl.username"], settings["sasl.password"]) == ("dora", PASSWORD)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("sasl.pasword", PASSWORD, ["sasl.pasword", "sasl.password"]),
        ("commit.interval.ms", "100", ["commit.interval.ms", "not a property of Kafka clients"]),
        ("DB_URL", PASSWORD, ["DB_URL", "not a property of Kafka clients"]),
        ("security.protocol", PASSWORD, ["security.protocol", "expected one of"]),
        ("group.id", "g", ["group.id", "cannot be set"]),
    ],
)
def test_invalid_credential_is_rejected_without_being_shown(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    """The error has the file and the nearest known name, but not its content."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert all(word in str(caught.value) for word in words)
    assert str(tmp_path) in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_missing_directory_is_named(tmp_path: Path) -> None:
    """The Secret was not mounted."""
    with pytest.raises(ConfigError, match=r"credentials\.dir.*mount"):
        load(tmp_path / "missing")


def test_binary_credentials_are_rejected(tmp_path: Path) -> None:
    """The value of a property is text."""
    (tmp_path / "sasl.password").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path)


def test_settings_may_come_as_json_in_one_variable(tmp_path: Path) -> None:
    """Every key can be written there; other variables override it, and it overrides the file."""
    file = tmp_path / "millpond.toml"
    file.write_text('"commit.interval.ms" = 1\n"poll.ms" = 7\n')
    inline = (
        '{"commit.interval": "200ms", "http.port": "9", "consumer": {"fetch.min.bytes": 2}, "topic.retention.ms": "5"}'
    )
    config = Config.load(file, {**NEEDED, "MILLPOND_HTTP_PORT": "8", "MILLPOND_CONFIG_INLINE": inline})
    assert (config.commit_interval_ms, config.poll_ms, config.http_port) == (200, 7, 8)
    assert config.consumer["fetch.min.bytes"] == 2
    assert config.topic == {"retention.ms": "5"}
    assert config.origins["commit.interval.ms"] == "in MILLPOND_CONFIG_INLINE"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{{"sasl.password": "{PASSWORD}"', "valid JSON"),
        (f'["{PASSWORD}"]', "JSON object"),
        ('{"comit.interval": "1s"}', "commit.interval"),
        ('{"http.port": null}', "http.port"),
    ],
)
def test_invalid_json_settings_are_rejected(text: str, words: str) -> None:
    """The error has the variable, but not its content."""
    with pytest.raises(ConfigError) as caught:
        Config.load(None, {**NEEDED, "MILLPOND_CONFIG_INLINE": text})
    assert "MILLPOND_CONFIG_INLINE" in str(caught.value)
    assert words in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None or PASSWORD not in repr(caught.value.__cause__)


def test_other_variables_of_millpond_are_no_settings() -> None:
    """The path of the termination message is read before there is a configuration."""
    assert Config.load(None, {**NEEDED, "MILLPOND_TERMINATION_LOG": "/dev/null"}).application_id == "a"


def test_worker_has_the_given_revision() -> None:
    """The one that its starter sets."""
    assert Config.load(None, {**NEEDED, "MILLPOND_REVISION": "7d4f0c2a91"}).revision == "7d4f0c2a91"


class Watched:
    """Watched files, and a clock."""

    def __init__(self, directory: Path | None, files: Iterable[Path] = ()) -> None:
        self.now = 0.0
        self.files = CredentialFiles(directory, files, lambda: self.now)

    def changed(self) -> bool:
        """After a while."""
        self.now += 11
        return self.files.changed()


def _replace(mounted: Path, name: str, **values: str) -> None:
    """Publish another version of a Secret as the kubelet does: one rename changes all files."""
    data = mounted / name
    data.mkdir()
    for each in (mounted / "..data").iterdir():
        (data / each.name).write_bytes(each.read_bytes())
    for key, value in values.items():
        (data / key.replace("_", ".")).write_text(value)
    (mounted / "..new").symlink_to(name)
    (mounted / "..new").rename(mounted / "..data")


def test_changed_secret_is_noticed(mounted: Path) -> None:
    """So is a change back; a new version with the same content is no change."""
    watched = Watched(mounted)
    assert not watched.changed()
    _replace(mounted, "..2")
    assert not watched.changed()
    _replace(mounted, "..3", sasl_password="another")
    assert watched.changed()
    _replace(mounted, "..4", sasl_password=f"{PASSWORD}\n")
    assert not watched.changed()


def test_files_that_properties_name_are_watched_too(tmp_path: Path) -> None:
    """Certificates may be in any directory; a file that cannot be read for a moment is no change."""
    file = tmp_path / "ca.pem"
    file.write_text("one")
    settings = {"ssl.ca.location": str(file), "ssl.key.location": str(tmp_path / "none"), "sasl.username": "alice"}
    assert files_of([settings]) == {file}
    watched = Watched(None, files_of([settings]))
    file.unlink()
    assert not watched.changed()
    file.write_text("two")
    assert watched.changed()


def test_unchanged_credentials_are_read_every_ten_seconds_at_most(mounted: Path) -> None:
    """Although every heartbeat checks."""
    watched = Watched(mounted)
    _replace(mounted, "..2", sasl_password="another")
    assert not watched.files.changed()
    assert watched.changed()


def test_digest_of_credentials_is_useless_in_another_process(mounted: Path) -> None:
    """Two processes have different digests of the same files, and no content is shown."""
    one, other = CredentialFiles(mounted), CredentialFiles(mounted)
    assert one._initial != other._initial
    assert PASSWORD not in repr(vars(one))
