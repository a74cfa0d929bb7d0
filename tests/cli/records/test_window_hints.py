"""Keys in windows are recognized by their bytes, and the message names the options that show them."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

from millpond.cli.records.coders import of_serde
from millpond.cli.records.window_hints import checked, kind_of_windows
from millpond.serdes import SessionWindowedSerde, String, TimeWindowedSerde, Windowed
from tests.cli.conftest import Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

T = 1_767_000_000_000
IN_WINDOW = TimeWindowedSerde(String, timedelta(minutes=15))
IN_SESSION = SessionWindowedSerde(String)
KEYS = {
    "SIZE": IN_WINDOW.serialize(Windowed("ann", T, T + 900_000)),
    "session": IN_SESSION.serialize(Windowed("ann", T, T + 5)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_kind_of_windows_is_recognized(kind: str) -> None:
    """By the likely times at the end of a key, also after a sequence number in changelogs."""
    assert kind_of_windows(KEYS[kind], "counts") == kind
    in_changelog = KEYS["SIZE"] + bytes(4)
    assert kind_of_windows(in_changelog, "counts-changelog") == "SIZE"
    assert kind_of_windows(in_changelog, "counts") == ""


@pytest.mark.parametrize("key", [b"", b"ann", b"a-long-key-of-text", struct.pack(">q", 7), bytes(16), b"\xff" * 16])
def test_other_keys_are_not(key: bytes) -> None:
    """Text and small numbers are no times."""
    assert kind_of_windows(key, "counts") == ""


def test_a_wrong_option_is_told_with_the_right_one() -> None:
    """A key in a session ends with a time as well, so a window of a fixed size would be read from it."""
    by_size, by_session = of_serde(IN_WINDOW, is_key=True), of_serde(IN_SESSION, is_key=True)
    assert checked(by_size, "15m", "counts").decode(KEYS["SIZE"]) == Windowed("ann", T, T + 900_000)
    assert checked(by_session, "session", "counts").decode(KEYS["session"]) == Windowed("ann", T, T + 5)
    with pytest.raises(ValueError, match="one in a session: give --window session instead of --window 15m"):
        checked(by_size, "15m", "counts").decode(KEYS["session"])
    with pytest.raises(ValueError, match="in a window of a fixed size: give --window SIZE instead"):
        checked(by_session, "session", "counts").decode(KEYS["SIZE"])


def test_consume_names_the_option(broker: Broker, create_topic: CreateTopic, millpond: Millpond) -> None:
    """On standard error, once, and not with the option."""
    topic = create_topic("sessions")
    kafka.produce(broker.bootstrap_servers, topic, [(KEYS["session"], "1")] * 2)
    place = ("--bootstrap-servers", broker.bootstrap_servers)
    plain = millpond("consume", topic, *place)
    assert plain.err.count("the keys look like keys in sessions: --window session shows them") == 1
    right = millpond("consume", topic, "--window", "session", *place)
    assert '"key":"ann"' in right.out
    assert "look like" not in right.err
    assert "give --window session instead of --window 15m" in millpond("consume", topic, "--window", "15m", *place).err
