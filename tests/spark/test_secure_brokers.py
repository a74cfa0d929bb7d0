"""Spark reads from brokers that require certificates and passwords; errors with these are one sentence."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import serdes
from millpond.cli import main
from millpond.runtime.config.model import Config
from millpond.state import KeyValueStoreBuilder
from tests.spark.changelogs import PARTITIONS, Application
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.secured.secure_broker import PASSWORD, SecureBroker, secure_broker

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning"
    ),  # pyspark leaves them to the garbage collector
]

BUILDER = KeyValueStoreBuilder(name="kv", key=serdes.Bytes, value=serdes.Bytes)
OTHER_PASSWORD = "another-s3cr3t"
APPLICATION = """
from millpond import serdes
from millpond.dsl import StreamsBuilder

def build():
    builder = StreamsBuilder()
    builder.stream("input", key=serdes.String, value=serdes.String).group_by_key().count(store="kv")
    return builder.build()
"""


@pytest.fixture(scope="module")
def secure(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker for this module alone."""
    with secure_broker(own_brokers, tmp_path_factory.mktemp("secure")) as made:
        yield made


@pytest.fixture
def read_over(secure: SecureBroker, snapshot: Callable[..., Any], rng: random.Random) -> Callable[[str], None]:
    """Make a snapshot over a listener, and check its content."""

    def check(listener: str) -> None:
        name = f"app-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(secure.plain, f"{name}-input", PARTITIONS)
        application = Application(secure.plain, name, f"{name}-input", {"key_value": BUILDER})
        application.write(rng, 2)
        flags = {"application.id": name, **secure.settings(listener)}
        application.config = Config.load(None, flags=flags)
        made = snapshot(application)
        kept = [
            {key: value for key, value, _, _ in records if key is not None}
            for records in application.committed("kv").values()
        ]
        assert [part.rows for part in made.manifest.store("kv").parts] == [
            sum(value is not None for value in rows.values()) for rows in kept
        ]

    return check


@pytest.mark.long
def test_certificate_and_password(read_over: Callable[[str], None]) -> None:
    """Both at once; the password has characters that Java's login settings quote."""
    read_over("BOTH")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("listener", ["TLS", "MTLS"])
def test_certificates_alone(read_over: Callable[[str], None], listener: str) -> None:
    """Certificates of the brokers, and of the client."""
    read_over(listener)


def _changes(secure: SecureBroker, directory: Path) -> dict[str, dict[str, str | None]]:
    """Return the cause of an error -> the changed settings; None removes a setting."""
    key = secure.key.read_text()
    contents = {
        "damaged": "no certificate",
        "damaged-key": key.replace(key.splitlines()[2], key.splitlines()[2][::-1]),
        "other-format": key.replace("PRIVATE KEY", "EC PRIVATE KEY"),
    }
    for name, text in contents.items():
        (directory / name).write_text(text)
    return {
        "password": {"sasl.password": OTHER_PASSWORD},
        "authority": {"ssl.ca.location": str(secure.other_authority)},
        "no certificate": {"ssl.certificate.location": None, "ssl.key.location": None},
        "no key file": {"ssl.key.location": str(directory / "missing")},
        "damaged authority": {"ssl.ca.location": str(directory / "damaged")},
        "damaged certificate": {"ssl.certificate.location": str(directory / "damaged")},
        "damaged key": {"ssl.key.location": str(directory / "damaged-key")},
        "key of another format": {"ssl.key.location": str(directory / "other-format")},
    }


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("password", "rejects this application's credentials"),
        ("authority", "is not reachable over TLS"),
        ("no certificate", "is not reachable over TLS"),
        ("no key file", "'ssl.key.location' names"),
        ("damaged authority", "ssl.ca.location failed"),
        ("damaged certificate", "ssl.certificate.location failed"),
        ("key of another format", "openssl pkcs8"),
        ("damaged key", "ssl.key.location failed"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    secure: SecureBroker,
    wrong: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit status is not 0, no message has a secret, and nothing is written."""
    pytest.importorskip("pyspark")
    changed = secure.settings("BOTH") | _changes(secure, tmp_path)[wrong]
    settings = {name: value for name, value in changed.items() if value is not None}
    mounted = tmp_path / "secret"
    mounted.mkdir()
    for name, value in settings.items():
        if name != "bootstrap.servers":
            (mounted / name).write_text(value)
    module = f"app_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(APPLICATION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MILLPOND_CREDENTIALS_DIR", str(mounted))
    with pytest.raises(SystemExit) as ended:
        main([
            "snapshot", "create", f"{module}:build", "--location", str(tmp_path / "snapshots"),
            "--application-id", "app",
            "--bootstrap-servers", settings["bootstrap.servers"],
        ])  # fmt: skip
    said = capsys.readouterr()
    assert ended.value.code not in (0, None)
    assert told in said.err
    assert "Traceback" not in said.err
    for secret in (PASSWORD, OTHER_PASSWORD, secure.key.read_text().splitlines()[1]):
        assert secret not in said.out + said.err
    assert not (tmp_path / "snapshots").exists()
