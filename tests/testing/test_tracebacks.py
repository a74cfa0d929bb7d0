"""The traceback of an error of a topology, as pytest shows it: it ends with the user's own line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import millpond as mp
from millpond.errors import TopologyError


def _stream() -> mp.KStream[str, str]:
    return mp.StreamsBuilder().stream("in", key=mp.String, value=mp.String)


def _join() -> object:
    builder = mp.StreamsBuilder()
    table = builder.table("table", key=mp.String, value=mp.String)
    stream = builder.stream("in", key=mp.String, value=mp.String)
    return stream.left_join(table, lambda a, b, c: a)  # type: ignore[arg-type, misc]


def _lines(call: Callable[[], object]) -> list[str]:
    with pytest.raises(TopologyError) as raised:
        call()
    return [str(entry.path) for entry in raised.traceback.filter(raised)]


@pytest.mark.parametrize(
    "mistake",
    [
        _join,
        lambda: _stream().filter(3),  # type: ignore[arg-type]
        lambda: _stream().map_values(lambda a, b, c: a),  # type: ignore[arg-type, misc]
        lambda: _stream().group_by_key().count(stor="x"),  # type: ignore[call-arg]
        lambda: mp.StreamsBuilder().stream("in", key=str),  # type: ignore[arg-type]
    ],
)
def test_no_line_of_millpond_is_shown(mistake: Callable[[], object]) -> None:
    """Thirty of them would come before the message."""
    assert set(_lines(mistake)) == {__file__}
