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
