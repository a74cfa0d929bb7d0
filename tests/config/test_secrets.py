"""A configured password appears in no log, message, dump or display."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import pprint

import pytest
from confluent_kafka import Producer

from millpond.errors import ConfigError
from millpond.runtime.config.model import Config, Secret
from millpond.runtime.config.parsers import is_secret
from tests.support import kafka

SECRET = "hunter2-swordfish"
SECRET_KEYS = (
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "producer.sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "app.basic.auth.user.info",
    "app.api.token",
    "app.client.secret",
)


@pytest.fixture
def config() -> Config:
    given: dict[str, object] = dict.fromkeys(SECRET_KEYS, SECRET)
    return Config.of({**given, "application.id": "a", "bootstrap.servers": "127.0.0.1:1"})


def test_no_way_to_show_a_configuration_shows_a_secret(config: Config) -> None:
    """repr, str, format, dictionaries, dataclass dumps, pprint and logs of all of them."""
    shown = [
        repr(config),
        f"{config}",
        str(config.as_mapping()),
        repr(dict(config.as_mapping())),
        str(
            dataclasses.asdict(
                dataclasses.replace(
                    config,
                    origins={},
                    consumer=dict(config.consumer),
                    producer=dict(config.producer),
                    admin=dict(config.admin),
                    topic={},
                    tags={},
                    app=dict(config.app),
                )
            )
        ),
        pprint.pformat(dict(config.consumer)),
        str(config.producer),
        str(config.consumer_settings()),
        repr(config.producer_settings()),
        f"{config.admin_settings()}",
        f"{config.consumer_settings()}",
        json.dumps(dict(config.as_mapping()), default=str),
    ]
    assert SECRET not in "".join(shown)
    assert "[hidden]" in shown[2]


def test_no_log_record_shows_a_secret(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is logged of the configuration, as argument or in the text."""
    caplog.set_level(logging.DEBUG)
    log = logging.getLogger("test")
    log.info("starting with %s", config)
    log.info("consumer %s", config.consumer_settings())
    log.info("mapping %r", config.as_mapping())
    log.info(f"producer {config.producer}")  # noqa: G004  (one way to show it)
    assert len(caplog.records) == 4
    assert SECRET not in caplog.text


def test_the_client_gets_the_secret_in_clear(config: Config) -> None:
    """Librdkafka gets the text, and would reject another type."""
    assert config.producer_settings()["sasl.password"] == SECRET
    secure = Config.of(
        {
            "application.id": "a", "bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": SECRET, "log_level": 0,
        }
    )  # fmt: skip
    Producer(dict(secure.producer_settings()), logger=kafka.log)


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("misspell", [False, True])
def test_no_error_shows_a_secret(key: str, misspell: bool) -> None:
    """A wrong setting next to a secret, or a misspelled secret itself, is reported without its value."""
    given = {
        key.replace("password", "pasword").replace("sasl.", "sals.") if misspell else key: SECRET,
        "poll.ms": "soon",
    }
    with pytest.raises(ConfigError) as refused:
        Config.of({"application.id": "a", "bootstrap.servers": "b", **given})
    assert SECRET not in str(refused.value)


def test_secrets_compare_and_copy_but_do_not_pickle() -> None:
    """Equal texts are equal secrets; a pickle would contain the text."""
    secret = Secret(SECRET)
    assert secret == Secret(SECRET)
    assert secret != Secret("other")
    assert secret != SECRET
    assert copy.deepcopy({"a": secret})["a"].reveal() == SECRET
    assert len({secret, Secret(SECRET)}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    "key", ["ssl.ca.location", "sasl.username", "ssl.key.location", "application.id", "app.secretary"]
)
def test_ordinary_settings_are_shown(key: str) -> None:
    """Paths and user names help to find mistakes."""
    assert not is_secret(key)
