"""Text of a hostile tenant in every field of the console's documents, in headless Chromium."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millpond.protocol.overview import ApplicationOverview
from tests.console.pond import Server, Source, overview
from tests.support.chromium import Page

_MARKUP = "\"'><img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script></title></text>"
_TURN = "\u202efdp.exe\u2067\u202d"
_CONTROL = "a\x00b\x1b[31mc\x07d\ufffee\x9bf"
_LONG = "w" * 100_000
_EMOJI = "\U0001f469\u200d\U0001f680\u0301" * 40
TEXTS = {"markup": _MARKUP, "direction": _TURN, "control": _CONTROL, "long": _LONG, "emoji": _EMOJI,
         "prototype": "constructor", "proto": "__proto__"}  # fmt: skip
_KEPT = {"namespace", "name", "task", "drawing", "kind", "mode", "status"}
"""Fields that Kubernetes or the operator checks, and those that lead to the application."""
_NAMES = {"worker", "source", "target", "owner", "node", "type", "revision", "epoch", "application_id", "guarantee",
          "state", "phase", "degraded"}  # fmt: skip
"""Fields that cannot be longer than a name in Kubernetes."""
_LONGEST_NAME = 253
_WIDE = """[...document.querySelectorAll('body *')].filter((each) => !each.closest('.scroll > *, .skip')
  && each.getBoundingClientRect().right > innerWidth + 0.5).map((each) => each.outerHTML.slice(0, 200))"""


def _filled(value: Any, text: str, field: str = "") -> Any:
    """Return a document with a text in all its fields of text."""
    if isinstance(value, str):
        text = text[:_LONGEST_NAME] if field in _NAMES else text
        return text if field not in _KEPT else value
    if isinstance(value, tuple):
        return tuple(_filled(each, text, field) for each in value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{each: _filled(getattr(value, each), text, each) for each in value.__struct_fields__}
        )
    return value


def _hostile(text: str) -> ApplicationOverview:
    found: ApplicationOverview = overview()
    assert found.topology is not None
    names = {each.name: f"{each.name}{text}" for each in found.topology.nodes}
    nodes = tuple(
        msgspec.structs.replace(each, name=names[each.name], label=f"{each.label}{text}")
        for each in found.topology.nodes
    )
    edges = tuple(
        msgspec.structs.replace(
            each, source=names[each.source], target=names[each.target], topic=each.topic and f"{each.topic}{text}"
        )
        for each in found.topology.edges
    )
    picture = msgspec.structs.replace(found.topology, nodes=nodes, edges=edges)
    return msgspec.structs.replace(_filled(found, text), topology=picture)


@pytest.mark.parametrize("kind", TEXTS)
def test_page_stays_readable_whatever_a_tenant_writes(page: Page, server: Server, source: Source, kind: str) -> None:
    """Nothing is executed, everything else is there, and nothing leaves the page's width."""
    source.overviews["flights", "pond"] = _hostile(TEXTS[kind])
    page.open(f"{server.url}#/flights/pond")
    page.wait_text("Moves in progress", "Live", "4,958/s")
    page.wait("document.querySelectorAll('#topology svg').length > 0")
    assert page.run("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
    assert "stolen" not in page.run("document.title")
    assert page.run(_WIDE) == []
    assert page.run("document.documentElement.scrollWidth") <= 1300
    assert page.run("document.documentElement.scrollHeight") < 30_000
    assert "undefined" not in page.text
    assert not [each for each in page.text if each in "\u202e\u202d\u2067\x00\x1b\x07\x9b"]
    page.run("location.hash = '#/'")
    page.wait_text("flights/pond")
    assert page.run(_WIDE) == []
    assert page.run("document.documentElement.scrollHeight") < 30_000
