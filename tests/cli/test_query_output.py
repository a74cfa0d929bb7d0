"""Tables of rows, whose keys and values are chosen by whoever writes records."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from millpond.cli.query.output import TableOutput

_EVIL = "\x1b]0;title\x07\x1b[2J\x9b1A\u202etxt"


@pytest.mark.parametrize("value", [_EVIL, {_EVIL: _EVIL}, [_EVIL, 1]], ids=["text", "object", "list"])
def test_rows_do_not_control_the_terminal(value: object) -> None:
    """Nor do the names of fields."""
    out = io.StringIO()
    table = TableOutput(Console(file=out, width=200, color_system=None))
    table.rows(iter([{"key": _EVIL, "value": value, "timestamp": 0}]), 10)
    table.answer(_EVIL, {"found": False})
    assert "title" in out.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*out.getvalue()}


def test_a_version_shows_until_when_it_was_valid() -> None:
    """Else a key that was deleted looks present: its latest version has a time at which it ended."""
    out = io.StringIO()
    versions: list[dict[str, object]] = [
        {"key": "card-1", "value": {"name": "Ann"}, "timestamp": 1000, "valid_to": 2000},
        {"key": "card-1", "value": {"name": "Eve"}, "timestamp": 2000, "valid_to": None},
    ]
    TableOutput(Console(file=out, width=200, color_system=None)).rows(iter(versions), 10)
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["key", "name", "timestamp", "valid_to"]
    assert lines[1].split()[2:] == ["1970-01-01", "00:00:01", "1970-01-01", "00:00:02"]
    assert lines[2].split()[2:] == ["1970-01-01", "00:00:02", "-"]
